// A panel's sixteen rows in one AVX-512 register (F, BW and VL).
//
// Untested on hardware: the machines this was written on do not have it. The tests passed with its intrinsics written
// out in plain C++; on a processor that has them they run this table by themselves.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "precision.h"

#define VCDEPLOY_ISA avx512

namespace vcdeploy::avx512 {

constexpr int kRegisters = 1;  // of one Rows

struct Rows {
    __m512 x;
};

static inline Rows load(const float* p) { return {_mm512_load_ps(p)}; }
static inline void store(float* p, Rows a) { _mm512_store_ps(p, a.x); }
static inline Rows all(float x) { return {_mm512_set1_ps(x)}; }

static inline Rows operator+(Rows a, Rows b) { return {_mm512_add_ps(a.x, b.x)}; }
static inline Rows operator-(Rows a, Rows b) { return {_mm512_sub_ps(a.x, b.x)}; }
static inline Rows operator*(Rows a, Rows b) { return {_mm512_mul_ps(a.x, b.x)}; }
static inline Rows operator/(Rows a, Rows b) { return {_mm512_div_ps(a.x, b.x)}; }

// a * b + c
static inline Rows multiply_add(Rows a, Rows b, Rows c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }

// x between the bounds; NaN stays NaN, since these instructions return their second operand then.
static inline Rows clamp(Rows a, float least, float most) {
    return {_mm512_max_ps(_mm512_set1_ps(least), _mm512_min_ps(_mm512_set1_ps(most), a.x))};
}

// To the nearest whole number.
static inline Rows rounded(Rows a) {
    return {_mm512_roundscale_ps(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// a * 2^n for whole n from -126 to 127.
static inline Rows times_power_of_two(Rows a, Rows n) { return {_mm512_scalef_ps(a.x, n.x)}; }

// The bits of `old` where e is 0, else a.
static inline Rows unless_zero(Rows e, Rows old, Rows a) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(e.x, _mm512_setzero_ps(), _CMP_EQ_OQ), a.x, old.x)};
}

// Sixteen weights as floats.
static inline Rows widened(const float* w) { return load(w); }
static inline Rows widened(const Half* w) {
    return {_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(w)))};
}
static inline Rows widened(const Bfloat16* w) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i low = _mm256_slli_epi32(both, 16);
    const __m256i high = _mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    return {_mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1))};
}

// Sixteen int32 sums.
struct Counts {
    __m512i x;
};

static inline Counts load(const std::int32_t* p) { return {_mm512_load_si512(p)}; }
static inline void store(std::int32_t* p, Counts a) { _mm512_store_si512(p, a.x); }

// Where sums begin whose levels add up to `total`: the first eight rows' weights come with 128 added.
static inline Counts start_of(std::int32_t total) { return {_mm512_maskz_set1_epi32(0xff, total * -128)}; }

// The same, where sums are known already.
static inline Counts started(Counts known, Counts start) { return {_mm512_add_epi32(known.x, start.x)}; }

// Two columns of sixteen rows in int16, [16][2], the first eight rows with 128 added (layout.h).
struct ColumnPair {
    __m512i x;
};

static inline ColumnPair column_pair(const std::uint8_t* w) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i low = _mm256_and_si256(both, _mm256_set1_epi16(0xff)), high = _mm256_srai_epi16(both, 8);
    return {_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
}

// Adds a pair of columns times a pair of levels.
static inline Counts multiply_add(ColumnPair w, const std::int16_t* pair, Counts sum) {
    std::int32_t both;
    std::memcpy(&both, pair, sizeof both);
    return {_mm512_add_epi32(sum.x, _mm512_madd_epi16(_mm512_set1_epi32(both), w.x))};
}

// Sixteen numbers, rounded to the nearest, half to even.
static inline void store_whole(std::int16_t* p, Rows a) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.x)));
}
static inline Rows to_float(Counts a) { return {_mm512_cvtepi32_ps(a.x)}; }

// Adds a_i b_i to sum[i mod 16] for n elements, a multiple of 16.
static inline void add_products(const float* a, const float* b, int n, double sum[16]) {
    __m512d s0 = _mm512_setzero_pd(), s1 = s0;
    const auto wide = [](const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); };
    for (int i = 0; i < n; i += 16) {
        s0 = _mm512_fmadd_pd(wide(a + i), wide(b + i), s0);
        s1 = _mm512_fmadd_pd(wide(a + i + 8), wide(b + i + 8), s1);
    }
    _mm512_storeu_pd(sum, s0);
    _mm512_storeu_pd(sum + 8, s1);
}

}  // namespace vcdeploy::avx512
