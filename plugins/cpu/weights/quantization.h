// Quantization of weights and activations in int8 and w8a8 (docs/design.md, section 2).
//
// Weights are quantized symmetrically per row, 127 levels. An activation vector is quantized to activation_levels(D)
// levels of its range. The range of a state is at least 1, which a state that starts within it never exceeds, so that
// its unit is the same at every step. The range of an input is the largest magnitude in the whole x, masked or not.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/spec.h"
#include "kernels/table.h"

namespace vcdeploy {

// The levels of a quantized precision, halved until an int32 sum of D products with weights up to 127 cannot overflow.
constexpr int activation_levels(Precision precision, int dim) {
    int levels = spec_of(precision).levels;
    while (std::int64_t{127} * levels * dim > 0x7fffffff) levels /= 2;
    return levels;
}

// The range (the magnitude mapped to the highest level), from the largest magnitude.
inline float state_range(float largest) { return largest <= 1 ? 1 : largest; }   // NaN stays NaN
inline float input_range(float largest) { return std::max(0x1p-40f, largest); }  // never 0, since it is a divisor

// The scale of a row of weights, from its largest magnitude: a 127th of it, without the last seven bits. A level times
// the scale is then exact in float32, so that a runtime given only the dequantized weights recovers the same scale and
// levels.
inline float row_scale(float largest) {
    const float scale = std::max(0x1p-40f, largest) / 127;
    const float wide = scale * 129;
    const float rest = wide - scale;
    return wide - rest;
}

// Without a finite range, every product is NaN, whatever the levels.
inline void set_range(Activations& x, float range, int levels) {
    x.levels_of_one = static_cast<float>(levels) / range;
    x.unit = std::isfinite(range) ? range / static_cast<float>(levels) : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace vcdeploy
