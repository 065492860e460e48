// Sums an array to measure read bandwidth, with enough independent sums to keep the adders busy.
//
// Included by kernels.cpp after simd/simd.h.
#pragma once

#include <cstddef>

#include "kernels/table.h"

namespace vcdeploy::VCDEPLOY_ISA {

static float sum(const float* values, std::size_t count) {
    constexpr int kSums = 8 / kRegisters;
    static_assert(kReadTogether % (kSums * 16) == 0);
    Rows sums[kSums];
    for (Rows& each : sums) each = all(0);
    for (std::size_t i = 0; i < count; i += kSums * 16)
        for (int k = 0; k < kSums; ++k) sums[k] = sums[k] + load(values + i + k * 16);
    for (int k = 1; k < kSums; ++k) sums[0] = sums[0] + sums[k];
    alignas(64) float rows[16];
    store(rows, sums[0]);
    float total = 0;
    for (float each : rows) total += each;
    return total;
}

}  // namespace vcdeploy::VCDEPLOY_ISA
