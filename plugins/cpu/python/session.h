// Sessions and sampling options in the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace vcdeploy {

void bind_session(nanobind::module_& m);

}  // namespace vcdeploy
