// Conversion of weights between f32, f16 and bf16, once, when a model is loaded.
#include "weights/precision.h"

#include <cstring>

namespace vcdeploy {
namespace {

std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace

Half to_half(float value) {
    const std::uint32_t bits = bits_of(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x38800000u) {
        // Below 2^-14 the spacing of f16 is 2^-24, the same as that of f32 at 0.5: adding 0.5 rounds correctly.
        const std::uint32_t steps = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        return {static_cast<std::uint16_t>(sign | steps)};
    }
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    const std::uint32_t rounded = magnitude - (112u << 23) + 0xfffu + odd;  // the exponent biases differ by 112
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

Bfloat16 to_bfloat16(float value) {
    const std::uint32_t bits = bits_of(value);
    return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

float to_float(Half half) {
    const std::uint32_t sign = (half.bits & 0x8000u) << 16, magnitude = half.bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));  // infinity, NaN
    if (magnitude >= 0x400u) return float_of(sign | ((magnitude << 13) + (112u << 23)));
    const float steps = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -steps : steps;
}

float to_float(Bfloat16 upper) { return float_of(static_cast<std::uint32_t>(upper.bits) << 16); }

}  // namespace vcdeploy
