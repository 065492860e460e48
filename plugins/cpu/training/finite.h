// Whether numbers are all finite: asked of all inputs before every pass, so that it has to be quick.
#pragma once

#include <cstddef>

#include "system/threads.h"

namespace vcdeploy::training {

// For float and double.
template <class T>
bool all_finite(const T* x, std::size_t count, Team& team);

}  // namespace vcdeploy::training
