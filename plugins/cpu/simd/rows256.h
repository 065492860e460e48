// Sixteen rows of a panel in two registers of 256 bits: avx2 and avx512vl.
//
// Included by avx.h.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

constexpr int kRegisters = 2;  // per Rows

struct Rows {
    __m256 low, high;
};

static inline Rows load(const float* p) { return {_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }
static inline void store(float* p, Rows x) {
    _mm256_store_ps(p, x.low);
    _mm256_store_ps(p + 8, x.high);
}
static inline Rows load_unaligned(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline Rows all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

// first, first + 1, …
static inline Rows numbers_from(float first) {
    const __m256 low = _mm256_add_ps(_mm256_set1_ps(first), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
    return {low, _mm256_add_ps(low, _mm256_set1_ps(8))};
}

static inline Rows operator+(Rows a, Rows b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
static inline Rows operator-(Rows a, Rows b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
static inline Rows operator*(Rows a, Rows b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
static inline Rows operator/(Rows a, Rows b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }

// a * b + c
static inline Rows multiply_add(Rows a, Rows b, Rows c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

// Clamps x to the bounds. NaN stays NaN, since these instructions then return their second operand.
static inline Rows clamp(Rows x, float least, float most) {
    const __m256 a = _mm256_set1_ps(least), b = _mm256_set1_ps(most);
    return {_mm256_max_ps(a, _mm256_min_ps(b, x.low)), _mm256_max_ps(a, _mm256_min_ps(b, x.high))};
}

// Rounds to the nearest integer.
static inline Rows rounded(Rows x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}

// x * 2^n for integers n from -126 to 127.
static inline Rows times_power_of_two(Rows x, Rows n) {
    const __m256i origin = _mm256_set1_epi32(127);
    const __m256i low = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.low), origin), 23);
    const __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.high), origin), 23);
    return {_mm256_mul_ps(x.low, _mm256_castsi256_ps(low)), _mm256_mul_ps(x.high, _mm256_castsi256_ps(high))};
}

// `old` bit for bit where e is 0, else x.
static inline Rows unless_zero(Rows e, Rows old, Rows x) {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_blendv_ps(x.low, old.low, _mm256_cmp_ps(e.low, zero, _CMP_EQ_OQ)),
            _mm256_blendv_ps(x.high, old.high, _mm256_cmp_ps(e.high, zero, _CMP_EQ_OQ))};
}

// 1 where x is above `most`, 0 where it is below `least`, else x.
static inline Rows thresholded(Rows x, float least, float most) {
    const auto half = [=](__m256 f) {
        const __m256 one = _mm256_cmp_ps(f, _mm256_set1_ps(most), _CMP_GT_OQ);
        const __m256 zero = _mm256_cmp_ps(f, _mm256_set1_ps(least), _CMP_LT_OQ);
        return _mm256_andnot_ps(zero, _mm256_blendv_ps(f, _mm256_set1_ps(1), one));
    };
    return {half(x.low), half(x.high)};
}

// Bit r is set if row r is above the bound.
static inline std::uint32_t rows_above(Rows x, float bound) {
    const auto half = [=](__m256 f) { return _mm256_movemask_ps(_mm256_cmp_ps(f, _mm256_set1_ps(bound), _CMP_GT_OQ)); };
    return static_cast<std::uint32_t>(half(x.low) | half(x.high) << 8);
}

// The bits of the larger magnitude per row; NaN is the largest.
struct Magnitudes {
    __m256i bits = _mm256_setzero_si256();

    void add(Rows x) {
        const __m256i sign = _mm256_set1_epi32(0x7fffffff);
        const __m256i low = _mm256_and_si256(_mm256_castps_si256(x.low), sign);
        bits = _mm256_max_epi32(bits, _mm256_max_epi32(low, _mm256_and_si256(_mm256_castps_si256(x.high), sign)));
    }
    float largest() const {
        __m128i four = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1))));
    }
};

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

// Sixteen numbers, rounded half to even; beyond int16 the nearest one it has, for NaN the largest: the minimum
// with NaN is its second operand, and the conversion to int32 makes everything else it can't represent -2^31.
static inline __m256i whole(Rows x) {
    const __m256 most = _mm256_set1_ps(32767.0f);
    const __m256i low = _mm256_cvtps_epi32(_mm256_min_ps(x.low, most));
    const __m256i both = _mm256_packs_epi32(low, _mm256_cvtps_epi32(_mm256_min_ps(x.high, most)));
    return _mm256_permute4x64_epi64(both, 0xd8);
}

// Sixteen int32 as floats.
static inline Rows to_float(__m256i low, __m256i high) { return {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)}; }

// Adds a_i b_i to sum[i mod 16] for n elements, a multiple of 16.
static inline void add_products(const float* a, const float* b, int n, double sum[16]) {
    __m256d s0 = _mm256_loadu_pd(sum), s1 = _mm256_loadu_pd(sum + 4), s2 = _mm256_loadu_pd(sum + 8),
            s3 = _mm256_loadu_pd(sum + 12);
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

}  // namespace vcdeploy::VCDEPLOY_ISA
