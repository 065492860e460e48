// The scheduler's dot product, summed in double, for inference and training.
//
// Included after simd/simd.h.
#pragma once

#include "simd/joined.h"

namespace vcdeploy::VCDEPLOY_ISA {

// The same as add_products of floats (simd/avx.h, simd/portable.h).
static inline void add_products(const double* a, const double* b, int n, double sum[16]) {
    for (int i = 0; i < n; i += 16)
        for (int lane = 0; lane < 16; ++lane) sum[lane] += a[i + lane] * b[i + lane];
}

// Adds a_i b_i to sum[i mod 16] for n elements.
template <class T>
static inline void add_all_products(const T* a, const T* b, int n, double sum[16]) {
    const int whole = n & ~15;
    add_products(a, b, whole, sum);
    for (int i = whole; i < n; ++i) sum[i - whole] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
}

// Element i always goes to partial sum i mod 16. Products of floats are exact in double, so the result has the same
// bits on every instruction set.
template <class T>
static double dot(const T* a, const T* b, int n) {
    double sum[16] = {};
    add_all_products(a, b, n, sum);
    return added_up<16>(sum);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
