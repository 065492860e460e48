// Sixteen rows of a panel in two 256-bit registers: AVX2 with FMA and F16C, or AVX-512 VL with VNNI.
//
// VNNI has an instruction that multiplies and accumulates integers, in 512-bit registers (counts.h). For floats, registers
// of that size were slower on a Zen 4 (docs/kernel-notes.md).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weights/precision.h"

namespace vcdeploy::VCDEPLOY_ISA {

constexpr int kRegisters = 2;  // per Rows
// kSumRegisters: how many of the 32 or 16 registers may hold the sums of sequences that are multiplied together.
// kPanelOrder: the most active rows of an integer product that goes panel by panel, which leaves fewer sums to load and
// store, instead of through memory in order. VCDEPLOY_UNROLL_COLUMNS: without it GCC copies the integer sums of AVX2
// from register to register.
#ifdef __AVX512VNNI__
constexpr int kSumRegisters = 24, kPanelOrder = 1 << 30;
#define VCDEPLOY_UNROLL_COLUMNS
#else
constexpr int kSumRegisters = 8, kPanelOrder = 384;
#define VCDEPLOY_UNROLL_COLUMNS _Pragma("GCC unroll 4")
#endif

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

// Sixteen int32 sums. During accumulation `high` holds the sums of the last eight rows, and `low` those of the first
// eight plus 256 times `high`. Both may wrap around; their difference does not (see ColumnPair).
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

// The initial sums if the levels add up to `total`: compensates for the 128 added to the weights of the first eight
// rows. Wraps around; the sums of products added to it wrap back.
static inline Counts start_of(std::int32_t total) {
    const auto less = static_cast<std::int32_t>(static_cast<std::uint32_t>(total) * -128u);
    return {_mm256_set1_epi32(less), _mm256_setzero_si256()};
}

// Two columns of sixteen rows: row r, with 128 added, in the lower and row r + 8 in the upper byte of an int16
// (layout.h). A shift extracts rows 8 to 15. Rows 0 to 7 are not extracted; instead, 256 times the sums of the others
// is subtracted at the end.
struct ColumnPair {
    __m256i both, high;
};

static inline ColumnPair column_pair(const std::uint8_t* w) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
    return {both, _mm256_srai_epi16(both, 8)};
}

// Adds a pair of columns times a pair of levels.
static inline Counts multiply_add(ColumnPair w, const std::int16_t* pair, Counts sum) {
    std::int32_t both;
    std::memcpy(&both, pair, sizeof both);
    const __m256i x = _mm256_set1_epi32(both);
    return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(x, w.both)),
            _mm256_add_epi32(sum.high, _mm256_madd_epi16(x, w.high))};
}

static inline Counts operator+(Counts a, Counts b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

#ifndef __AVX512VNNI__
// Four columns of sixteen rows in w8a8: those of a row are adjacent. 128 less than stored.
struct ColumnGroup {
    __m256i low, high;  // rows 0 to 7, 8 to 15
};

static inline ColumnGroup column_group(const std::uint8_t* w) {
    const auto* p = reinterpret_cast<const __m256i*>(w);
    const __m256i added = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(_mm256_load_si256(p), added), _mm256_xor_si256(_mm256_load_si256(p + 1), added)};
}

// Four levels, repeated, and their magnitudes.
struct ByteLevels {
    __m256i level, magnitude;
};

static inline ByteLevels spread(const std::int8_t* levels) {
    std::int32_t four;
    std::memcpy(&four, levels, sizeof four);
    const __m256i x = _mm256_set1_epi32(four);
    return {x, _mm256_abs_epi8(x)};
}

// Adds four columns times four levels. A sum of two products fits an int16: 2 · 127 · 127 < 2^15.
static inline Counts multiply_add(ColumnGroup w, const ByteLevels& x, Counts sum) {
    const auto products = [&](__m256i rows) {
        const __m256i pairs = _mm256_maddubs_epi16(x.magnitude, _mm256_sign_epi8(rows, x.level));
        return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    };
    return sum + Counts{products(w.low), products(w.high)};
}

// The initial sums: nothing was added to these weights.
static inline Counts start_of_bytes(std::int32_t) { return start_of(0); }
#endif

// Sixteen numbers, rounded half to even; beyond int16 the nearest one it has, for NaN the largest: the minimum
// with NaN is its second operand, and the conversion to int32 makes everything else it can't represent -2^31.
static inline __m256i whole(Rows x) {
    const __m256 most = _mm256_set1_ps(32767.0f);
    const __m256i low = _mm256_cvtps_epi32(_mm256_min_ps(x.low, most));
    const __m256i both = _mm256_packs_epi32(low, _mm256_cvtps_epi32(_mm256_min_ps(x.high, most)));
    return _mm256_permute4x64_epi64(both, 0xd8);
}
static inline void store_whole(std::int16_t* p, Rows x) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), whole(x)); }
// The same beyond int8.
static inline void store_bytes(std::int8_t* p, __m256i x) {
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(p), bytes);
}
static inline void store_whole(std::int8_t* p, Rows x) { store_bytes(p, whole(x)); }
// The same of x, less the same of y.
static inline void store_whole_difference(std::int16_t* p, Rows x, Rows y) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), _mm256_sub_epi16(whole(x), whole(y)));
}
static inline void store_whole_difference(std::int8_t* p, Rows x, Rows y) {
    store_bytes(p, _mm256_subs_epi16(whole(x), whole(y)));
}
// The sums themselves, after accumulation.
static inline Counts settled(Counts x) { return {_mm256_sub_epi32(x.low, _mm256_slli_epi32(x.high, 8)), x.high}; }
static inline Rows whole_to_float(Counts x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

static inline __m256i sixteen(const std::int16_t* levels) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(levels));
}
static inline __m256i sixteen(const std::int8_t* levels) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(levels)));
}

// The sum of levels [begin, end), extended to whole panels of sixteen.
template <class Level>
static inline std::int32_t total_of(const Level* levels, int begin, int end) {
    __m256i sum = _mm256_setzero_si256();
    for (int i = begin / 16 * 16; i < end; i += 16)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(sixteen(levels + i), _mm256_set1_epi16(1)));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

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

}  // namespace vcdeploy::VCDEPLOY_ISA
