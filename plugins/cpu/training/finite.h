// Checks that all values are finite. Runs on all inputs before every pass, so it has to be fast.
#pragma once

#include <cstddef>

#include "system/threads.h"

namespace vcdeploy::training {

// For float and double.
template <class T>
bool all_finite(const T* x, std::size_t count, Team& team);

}  // namespace vcdeploy::training
