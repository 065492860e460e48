// The training kernels in the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace vcdeploy {

void bind_training(nanobind::module_& m);

}  // namespace vcdeploy
