// How fast this machine reads weights: what bounds a step at batch 1, measured and not looked up.
#pragma once

#include <cstddef>

#include "kernels/table.h"

namespace vcdeploy {

// Bytes a second at which `threads` threads, each with its part of `bytes` bytes (rounded up to whole lines), sum
// them over and over for about `seconds`; the best of the passes, so that a disturbed one does not count. Sizes that
// fit a cache are read from it, as weights of that size would be. Throws std::invalid_argument for `bytes` or
// `seconds` of 0 or less, or a number of threads that Team refuses.
double read_bandwidth(std::size_t bytes, double seconds, int threads, const Kernels& kernels);

}  // namespace vcdeploy
