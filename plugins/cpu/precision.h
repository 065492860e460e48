// How a weight is stored: f32, f16, bf16 or int8, and the way between each and float.
//
// All sums are wide: the three floating formats are widened to f32 before they are multiplied, int8 sums in int32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vcdeploy {

enum class Precision { f32, f16, bf16, int8 };

struct Half {
    std::uint16_t bits;
};

struct Bfloat16 {
    std::uint16_t bits;
};

// Beyond this a float rounds to infinity in f16.
constexpr float kHalfLimit = 65520.0f;

// Rounded to nearest, ties to even; the value must be finite and within kHalfLimit.
Half to_half(float value);

// Rounded to nearest, ties to even; the value must be finite. Near f32's own limit it may become infinite.
Bfloat16 to_bfloat16(float value);

float to_float(Half half);
float to_float(Bfloat16 upper);

std::size_t bytes_of(Precision precision);

}  // namespace vcdeploy
