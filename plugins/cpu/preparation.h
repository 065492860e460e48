// Before the products: the scheduler's dot products in double, and activations as whole numbers.
//
// Included by the file of each instruction set after its simd_*.h.
#pragma once

#include "kernels.h"
#include "layout.h"

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

static float largest(const float* values, int n) {
    std::int32_t most = 0;  // magnitudes order as whole numbers do, with NaN above infinity
    for (int i = 0; i < n; ++i) {
        std::int32_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float value;
    std::memcpy(&value, &most, sizeof value);
    return value;
}

static void quantise(const Activations& x, int begin, int end) {
    const Rows levels = all(x.levels_of_one);
    for (int i = begin / kPanel * kPanel; i < end; i += kPanel) store_whole(x.level + i, load(x.value + i) * levels);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
