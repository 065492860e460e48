// Quantizes a vector for int8: its largest magnitude and its levels.
//
// Included by kernels.cpp after simd/simd.h.
#pragma once

#include "kernels/table.h"
#include "weights/layout.h"

namespace vcdeploy::VCDEPLOY_ISA {

static float largest(const float* values, int n) {
    std::int32_t most = 0;  // as integers, magnitudes keep their order, with NaN above infinity
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

static void quantize(const Activations& x, int begin, int end) {
    const Rows levels = all(x.levels_of_one);
    for (int i = begin / kPanel * kPanel; i < end; i += kPanel) store_whole(x.level + i, load(x.value + i) * levels);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
