// The passes over all logits that sampling needs: the largest one, and exponentials in double.
//
// Included by kernels.cpp after simd/simd.h. The compiler vectorizes the loops over kLogits; every instruction set gives
// the same bits, since element i always goes to partial sum i mod kLogits and nothing is fused.
#pragma once

#include "kernels/table.h"
#include "simd/exponential.h"
#include "simd/joined.h"

namespace vcdeploy::VCDEPLOY_ISA {

constexpr int kLogits = 16;

// The largest of n values; NaN if one is NaN or infinite.
static float highest(const float* values, int n) {
    float most[kLogits], bad[kLogits] = {};  // bad: 0, or NaN after a value that is not finite
    for (float& each : most) each = values[0];
    const auto add = [&](int i, int lane) {
        most[lane] = values[i] > most[lane] ? values[i] : most[lane];
        bad[lane] += values[i] - values[i];
    };
    const int whole = n / kLogits * kLogits;
    for (int i = 0; i < whole; i += kLogits)
        for (int lane = 0; lane < kLogits; ++lane) add(i + lane, lane);
    for (int i = whole; i < n; ++i) add(i, i - whole);
    return joined<kLogits>(most, [](float a, float b) { return b > a ? b : a; }) + added_up<kLogits>(bad);
}

// p_i = e^(logit_i · scale - most · scale); returns their sum. scale: 1 / temperature, since a division takes longer.
static double exponentials(const float* logits, int n, double scale, double most, double* p) {
    double sum[kLogits] = {};
    const double top = most * scale;
    const auto add = [&](int i, int lane) {
        p[i] = exponential(static_cast<double>(logits[i]) * scale - top);
        sum[lane] += p[i];
    };
    const int whole = n / kLogits * kLogits;
    for (int i = 0; i < whole; i += kLogits)
        for (int lane = 0; lane < kLogits; ++lane) add(i + lane, lane);
    for (int i = whole; i < n; ++i) add(i, i - whole);
    return added_up<kLogits>(sum);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
