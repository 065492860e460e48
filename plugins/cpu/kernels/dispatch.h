// Chooses a table of kernels: the best one this processor supports, or one by name.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

// The tables this processor can run, best first; the portable one is always last.
std::vector<const Kernels*> usable_kernels();

// name: an instruction set, or "auto" for the best. Throws std::invalid_argument, listing the choices, if there is
// none.
const Kernels& choose_kernels(const std::string& name);

}  // namespace vcdeploy
