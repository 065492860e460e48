// Which table of kernels to run: the best that this processor has, or the one asked for.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

// The tables this processor can run, best first; the portable one is always last.
std::vector<const Kernels*> usable_kernels();

// By name, or "auto" for the best. Throws std::invalid_argument where there is none, naming those there are.
const Kernels& choose_kernels(const std::string& name);

}  // namespace vcdeploy
