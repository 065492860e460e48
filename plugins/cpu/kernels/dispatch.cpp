// Chooses the instruction set at run time, once per loaded model.
#include "kernels/dispatch.h"

#include <stdexcept>
#include <utility>

#include "system/cpu_features.h"

namespace vcdeploy {

std::vector<const Kernels*> usable_kernels() {
    std::vector<const Kernels*> usable;
#ifdef VCDEPLOY_X86
    const CpuFeatures& cpu = cpu_features();
    if (cpu.avx512f && cpu.avx512bw && cpu.avx512vl && cpu.avx512_vnni && cpu.fma && cpu.f16c) {
        usable = {&avx512::kKernels, &avx512vl::kKernels};
        if (cpu.halves_avx512) std::swap(usable[0], usable[1]);
    }
    if (cpu.avx2 && cpu.fma && cpu.f16c) usable.push_back(&avx2::kKernels);
#endif
    usable.push_back(&portable::kKernels);
    return usable;
}

const Kernels& choose_kernels(const std::string& name) {
    const std::vector<const Kernels*> usable = usable_kernels();
    if (name == "auto") return *usable.front();
    std::string names;
    for (const Kernels* each : usable) {
        if (name == each->name) return *each;
        names += std::string(names.empty() ? "" : ", ") + each->name;
    }
    throw std::invalid_argument("no instruction set '" + name + "' on this processor: auto, or one of " + names);
}

}  // namespace vcdeploy
