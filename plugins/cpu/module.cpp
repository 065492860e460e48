// The Python module vcdeploy._native: a thin binding over the library of this folder.
#include <nanobind/nanobind.h>

#include "cpu_features.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
    m.doc() = "Native code of vcdeploy.";

    m.def(
        "cpu_features",
        [] {
            nb::dict features;
            for (const auto& [name, member] : vcdeploy::kCpuFeatureNames)
                features[name] = vcdeploy::cpu_features().*member;
            return features;
        },
        nb::sig("def cpu_features() -> dict[str, bool]"),
        "The instruction sets the kernels care about, and whether this processor has each.");
}
