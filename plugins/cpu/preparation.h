// Before the products: the scheduler's dot products in double, and activations as whole numbers.
//
// Included by the file of each instruction set after its simd_*.h.
#pragma once

#include "kernels.h"

namespace vcdeploy::VCDEPLOY_ISA {

static double dot(const float* a, const float* b, int n) {
    double sum[16] = {};
    const int whole = n & ~15;
    add_products(a, b, whole, sum);
    for (int i = whole; i < n; ++i) sum[i - whole] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
    return sum[0];
}

static bool quantise(Activations& x, int begin, int end, int columns) {
    constexpr std::int32_t kInfinity = 0x7f800000;
    std::int32_t largest_bits = 0;  // magnitudes order as whole numbers do, with NaN above infinity
    for (int i = begin; i < end; ++i) {
        std::int32_t bits;
        std::memcpy(&bits, x.value + i, sizeof bits);
        bits &= 0x7fffffff;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    if (largest_bits >= kInfinity) return false;
    float largest;
    std::memcpy(&largest, &largest_bits, sizeof largest);

    const std::int32_t room = 0x7fffffff / 127 / (columns > 0 ? columns : 1);
    const float most = static_cast<float>(room < 8191 ? room : 8191);
    x.unit = largest / most;
    const float levels = x.unit > 0 ? 1.0f / x.unit : 0.0f;
    constexpr float kWhole = 12582912.0f;  // 1.5 · 2^23: adding it leaves no room for a fraction
    for (int i = begin; i < end; ++i) {
        float level = (x.value[i] * levels + kWhole) - kWhole;
        level = level > most ? most : level < -most ? -most : level;
        x.level[i] = static_cast<std::int16_t>(level);
    }
    if ((end - begin) % 2) x.level[end] = 0;
    return true;
}

}  // namespace vcdeploy::VCDEPLOY_ISA
