// A panel's sixteen rows in AVX2 registers (with FMA and F16C): two vectors of eight.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "precision.h"

#define VCDEPLOY_ISA avx2

namespace vcdeploy::avx2 {

constexpr int kRegisters = 2;  // of one Rows

struct Rows {
    __m256 low, high;
};

static inline Rows load(const float* p) { return {_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }
static inline void store(float* p, Rows x) {
    _mm256_store_ps(p, x.low);
    _mm256_store_ps(p + 8, x.high);
}
static inline Rows all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

static inline Rows operator+(Rows a, Rows b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
static inline Rows operator-(Rows a, Rows b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
static inline Rows operator*(Rows a, Rows b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
static inline Rows operator/(Rows a, Rows b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }

// a * b + c
static inline Rows multiply_add(Rows a, Rows b, Rows c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

// x between the bounds; NaN stays NaN, since these instructions return their second operand then.
static inline Rows clamp(Rows x, float least, float most) {
    const __m256 a = _mm256_set1_ps(least), b = _mm256_set1_ps(most);
    return {_mm256_max_ps(a, _mm256_min_ps(b, x.low)), _mm256_max_ps(a, _mm256_min_ps(b, x.high))};
}

// To the nearest whole number.
static inline Rows rounded(Rows x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}

// x * 2^n for whole n from -126 to 127.
static inline Rows times_power_of_two(Rows x, Rows n) {
    const __m256i origin = _mm256_set1_epi32(127);
    const __m256i low = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.low), origin), 23);
    const __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.high), origin), 23);
    return {_mm256_mul_ps(x.low, _mm256_castsi256_ps(low)), _mm256_mul_ps(x.high, _mm256_castsi256_ps(high))};
}

// The bits of `old` where e is 0, else x.
static inline Rows unless_zero(Rows e, Rows old, Rows x) {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_blendv_ps(x.low, old.low, _mm256_cmp_ps(e.low, zero, _CMP_EQ_OQ)),
            _mm256_blendv_ps(x.high, old.high, _mm256_cmp_ps(e.high, zero, _CMP_EQ_OQ))};
}

// Sixteen weights as floats.
static inline Rows widened(const float* w) { return load(w); }
static inline Rows widened(const Half* w) {
    const auto* p = reinterpret_cast<const __m128i*>(w);
    return {_mm256_cvtph_ps(_mm_load_si128(p)), _mm256_cvtph_ps(_mm_load_si128(p + 1))};
}
static inline Rows widened(const Bfloat16* w) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i low = _mm256_slli_epi32(both, 16);
    const __m256i high = _mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    return {_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

// Sixteen int32 sums.
struct Counts {
    __m256i low, high;
};

static inline Counts load(const std::int32_t* p) {
    const auto* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_load_si256(q), _mm256_load_si256(q + 1)};
}
static inline void store(std::int32_t* p, Counts x) {
    auto* q = reinterpret_cast<__m256i*>(p);
    _mm256_store_si256(q, x.low);
    _mm256_store_si256(q + 1, x.high);
}
static inline Counts no_counts() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

// Adds w [16][2] times a pair of levels.
static inline Counts multiply_add_pair(const std::int8_t* w, const std::int16_t* pair, Counts sum) {
    const auto* p = reinterpret_cast<const __m128i*>(w);
    std::int32_t both;
    std::memcpy(&both, pair, sizeof both);
    const __m256i x = _mm256_set1_epi32(both);
    const __m256i low = _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(_mm_load_si128(p)));
    const __m256i high = _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(_mm_load_si128(p + 1)));
    return {_mm256_add_epi32(sum.low, low), _mm256_add_epi32(sum.high, high)};
}
static inline Rows to_float(Counts x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

// Adds a_i b_i to sum[i mod 16] for n elements, a multiple of 16.
static inline void add_products(const float* a, const float* b, int n, double sum[16]) {
    __m256d s0 = _mm256_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
    const auto wide = [](const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); };
    for (int i = 0; i < n; i += 16) {
        s0 = _mm256_fmadd_pd(wide(a + i), wide(b + i), s0);
        s1 = _mm256_fmadd_pd(wide(a + i + 4), wide(b + i + 4), s1);
        s2 = _mm256_fmadd_pd(wide(a + i + 8), wide(b + i + 8), s2);
        s3 = _mm256_fmadd_pd(wide(a + i + 12), wide(b + i + 12), s3);
    }
    _mm256_storeu_pd(sum, s0);
    _mm256_storeu_pd(sum + 4, s1);
    _mm256_storeu_pd(sum + 8, s2);
    _mm256_storeu_pd(sum + 12, s3);
}

}  // namespace vcdeploy::avx2
