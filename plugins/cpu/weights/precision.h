// Conversion of f16 and bf16 weights. They are widened to f32 before multiplication, so all sums are in f32.
#pragma once

#include <cstdint>

namespace vcdeploy {

struct Half {
    std::uint16_t bits;
};

struct Bfloat16 {
    std::uint16_t bits;
};

// From here on a float rounds to infinity in f16.
constexpr float kHalfLimit = 65520.0f;

// Rounded to nearest, ties to even; the value must be finite and within kHalfLimit.
Half to_half(float value);

// Rounded to nearest, ties to even; the value must be finite. Near f32's own limit it may become infinite.
Bfloat16 to_bfloat16(float value);

float to_float(Half half);
float to_float(Bfloat16 upper);

}  // namespace vcdeploy
