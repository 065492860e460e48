// The training kernels of the instruction set that ../dispatch.h chooses.
#pragma once

#include <string>

#include "training/table.h"

namespace vcdeploy::training {

// isa: a name, or "auto". Throws as choose_kernels() does.
template <class T>
const Table<T>& choose_table(const std::string& isa);

}  // namespace vcdeploy::training
