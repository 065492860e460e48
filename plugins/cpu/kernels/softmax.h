// The passes over all logits that sampling needs: the largest one, and exponentials in double.
//
// Included by kernels.cpp after simd/simd.h. The compiler vectorizes the loops over kLogits; every instruction set gives
// the same bits, since element i always goes to partial sum i mod kLogits and nothing is fused.
#pragma once

#include "kernels/table.h"
#include "simd/exponential.h"

namespace vcdeploy::VCDEPLOY_ISA {

constexpr int kLogits = 16;

// Adds up kLogits partial results in a fixed order.
template <class T, class Join>
static inline T joined(T (&part)[kLogits], Join join) {
    for (int width = kLogits / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) part[i] = join(part[i], part[i + width]);
    return part[0];
}

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
    const float finite = joined(bad, [](float a, float b) { return a + b; });
    return joined(most, [](float a, float b) { return b > a ? b : a; }) + finite;
}

// p_i = e^(logit_i / temperature - most / temperature); returns their sum.
static double exponentials(const float* logits, int n, double temperature, double most, double* p) {
    double sum[kLogits] = {};
    const double top = most / temperature;
    const auto add = [&](int i, int lane) {
        p[i] = exponential(static_cast<double>(logits[i]) / temperature - top);
        sum[lane] += p[i];
    };
    const int whole = n / kLogits * kLogits;
    for (int i = 0; i < whole; i += kLogits)
        for (int lane = 0; lane < kLogits; ++lane) add(i + lane, lane);
    for (int i = whole; i < n; ++i) add(i, i - whole);
    return joined(sum, [](double a, double b) { return a + b; });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
