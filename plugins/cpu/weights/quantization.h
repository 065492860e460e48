// int8 quantization of weights and activations (docs/design.md, section 2).
//
// Weights are quantized symmetrically per row, 127 levels. An activation vector is quantized to activation_levels(D)
// levels of its range: for a state at least 1, which no state exceeds that started within it, so that its unit is the same
// at every step; for an input the largest magnitude in the whole x, masked or not.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/table.h"

namespace vcdeploy {

// A power of two: 2^14, or as much less as keeps an int32 sum of D products with weights of up to 127 from overflowing.
constexpr int activation_levels(int dim) {
    int levels = 1 << 14;
    while (std::int64_t{127} * levels * dim > 0x7fffffff) levels /= 2;
    return levels;
}

// The magnitude that takes all levels, from the largest there is.
inline float state_range(float largest) { return std::max(1.0f, largest); }
inline float input_range(float largest) { return std::max(0x1p-40f, largest); }  // not 0, to divide by

// What a level of a row of weights is worth, from the largest magnitude in the row: a 127th, of which the seven last bits
// are cut off. So a weight, that many levels, is a float without rounding, and a runtime that has only the products
// finds the same scale and levels in them.
inline float row_scale(float largest) {
    const float scale = std::max(0x1p-40f, largest) / 127;
    const float wide = scale * 129;
    const float rest = wide - scale;
    return wide - rest;
}

inline void set_range(Activations& x, float range, int levels) {
    x.levels_of_one = static_cast<float>(levels) / range;
    x.unit = range / static_cast<float>(levels);
}

}  // namespace vcdeploy
