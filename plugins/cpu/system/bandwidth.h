// Measures read bandwidth, which bounds a step at batch 1.
#pragma once

#include <cstddef>

#include "kernels/table.h"

namespace vcdeploy {

// Read bandwidth in bytes/s: `threads` threads repeatedly sum `bytes` bytes (rounded up to whole lines), each its own
// part, for about `seconds`. Returns the best pass, so that disturbed ones do not count. Sizes that fit a cache are
// read from it, as weights of that size would be. Throws std::invalid_argument if `bytes` or `seconds` is not above 0
// or Team refuses the number of threads.
double read_bandwidth(std::size_t bytes, double seconds, int threads, const Kernels& kernels);

}  // namespace vcdeploy
