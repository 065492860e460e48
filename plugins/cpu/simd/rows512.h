// Sixteen rows of a panel in one register of 512 bits: avx512.
//
// Included by avx.h.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

constexpr int kRegisters = 1;  // per Rows

struct Rows {
    __m512 rows;
};

static inline Rows load(const float* p) { return {_mm512_load_ps(p)}; }
static inline void store(float* p, Rows x) { _mm512_store_ps(p, x.rows); }
static inline Rows load_unaligned(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline Rows all(float x) { return {_mm512_set1_ps(x)}; }

// first, first + 1, …
static inline Rows numbers_from(float first) {
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return {_mm512_add_ps(_mm512_set1_ps(first), numbers)};
}

static inline Rows operator+(Rows a, Rows b) { return {_mm512_add_ps(a.rows, b.rows)}; }
static inline Rows operator-(Rows a, Rows b) { return {_mm512_sub_ps(a.rows, b.rows)}; }
static inline Rows operator*(Rows a, Rows b) { return {_mm512_mul_ps(a.rows, b.rows)}; }
static inline Rows operator/(Rows a, Rows b) { return {_mm512_div_ps(a.rows, b.rows)}; }

// a * b + c
static inline Rows multiply_add(Rows a, Rows b, Rows c) { return {_mm512_fmadd_ps(a.rows, b.rows, c.rows)}; }

// Clamps x to the bounds. NaN stays NaN, since these instructions then return their second operand.
static inline Rows clamp(Rows x, float least, float most) {
    return {_mm512_max_ps(_mm512_set1_ps(least), _mm512_min_ps(_mm512_set1_ps(most), x.rows))};
}

// Rounds to the nearest integer.
static inline Rows rounded(Rows x) {
    return {_mm512_roundscale_ps(x.rows, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// x * 2^n for integers n from -126 to 127.
static inline Rows times_power_of_two(Rows x, Rows n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.rows), _mm512_set1_epi32(127));
    return {_mm512_mul_ps(x.rows, _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23)))};
}

// `old` bit for bit where e is 0, else x.
static inline Rows unless_zero(Rows e, Rows old, Rows x) {
    const __mmask16 zero = _mm512_cmp_ps_mask(e.rows, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return {_mm512_mask_blend_ps(zero, x.rows, old.rows)};
}

// 1 where x is above `most`, 0 where it is below `least`, else x.
static inline Rows thresholded(Rows x, float least, float most) {
    const __mmask16 one = _mm512_cmp_ps_mask(x.rows, _mm512_set1_ps(most), _CMP_GT_OQ);
    const __mmask16 zero = _mm512_cmp_ps_mask(x.rows, _mm512_set1_ps(least), _CMP_LT_OQ);
    return {_mm512_mask_blend_ps(zero, _mm512_mask_blend_ps(one, x.rows, _mm512_set1_ps(1)), _mm512_setzero_ps())};
}

// Bit r is set if row r is above the bound.
static inline std::uint32_t rows_above(Rows x, float bound) {
    return _mm512_cmp_ps_mask(x.rows, _mm512_set1_ps(bound), _CMP_GT_OQ);
}

// The bits of the larger magnitude per row; NaN is the largest.
struct Magnitudes {
    __m512i bits = _mm512_setzero_si512();

    void add(Rows x) {
        const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x.rows), _mm512_set1_epi32(0x7fffffff));
        bits = _mm512_max_epi32(bits, magnitude);
    }
    float largest() const {
        const __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(bits), _mm512_extracti64x4_epi64(bits, 1));
        __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1))));
    }
};

// Sixteen weights as floats.
static inline Rows widened(const float* w) { return load(w); }
static inline Rows widened(const Half* w) {
    return {_mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(w)))};
}
static inline Rows widened(const Bfloat16* w) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
    // Every weight becomes the upper half of a float: from the lower halves of the 32-bit words, then the upper ones.
    const __m512i order = _mm512_set_epi16(15, 0, 13, 0, 11, 0, 9, 0, 7, 0, 5, 0, 3, 0, 1, 0, 14, 0, 12, 0, 10, 0, 8, 0,
                                           6, 0, 4, 0, 2, 0, 0, 0);
    const __m512i words = _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, order, _mm512_castsi256_si512(both));
    return {_mm512_castsi512_ps(words)};
}

// Sixteen numbers, rounded half to even; beyond int16 the nearest one it has, for NaN the largest: the minimum
// with NaN is its second operand, and the conversion to int32 makes everything else it can't represent -2^31.
static inline __m256i whole(Rows x) {
    return _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_min_ps(x.rows, _mm512_set1_ps(32767.0f))));
}

// Sixteen int32 as floats.
static inline Rows to_float(__m256i low, __m256i high) {
    return {_mm512_cvtepi32_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1))};
}

// Adds a_i b_i to sum[i mod 16] for n elements, a multiple of 16.
static inline void add_products(const float* a, const float* b, int n, double sum[16]) {
    __m512d s0 = _mm512_loadu_pd(sum), s1 = _mm512_loadu_pd(sum + 8);
    const auto wide = [](const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); };
    for (int i = 0; i < n; i += 16) {
        s0 = _mm512_fmadd_pd(wide(a + i), wide(b + i), s0);
        s1 = _mm512_fmadd_pd(wide(a + i + 8), wide(b + i + 8), s1);
    }
    _mm512_storeu_pd(sum, s0);
    _mm512_storeu_pd(sum + 8, s1);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
