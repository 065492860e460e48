// The training kernels of the instruction set that kernels/dispatch.h chooses.
#pragma once

#include <string>

#include "training/kernel_table.h"

namespace vcdeploy::training {

// isa: a name, or "auto". Throws as choose_kernels() does.
template <class T>
const Table<T>& choose_table(const std::string& isa);

}  // namespace vcdeploy::training
