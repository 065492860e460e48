// Integers of sixteen rows in 256-bit registers: AVX2, or AVX-512 VL with VNNI. Floats are in rows256.h and rows512.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weights/precision.h"

#if VCDEPLOY_VECTOR_BYTES == 64
#include "simd/rows512.h"
#else
#include "simd/rows256.h"
#endif

namespace vcdeploy::VCDEPLOY_ISA {

// kSumRegisters: how many of the 32 or 16 registers may hold the sums of sequences that are multiplied together.
// kPanelRegisters: how many may hold those of several panels of one sequence. kPanelOrder: the most active rows of an integer product that goes panel by panel, which leaves fewer sums to load and
// store, instead of through memory in order. VCDEPLOY_UNROLL_COLUMNS: without it GCC copies the integer sums of AVX2
// from register to register.
#ifdef __AVX512VNNI__
constexpr int kSumRegisters = 24, kPanelRegisters = 16, kPanelOrder = 1 << 30;
#define VCDEPLOY_UNROLL_COLUMNS
#else
constexpr int kSumRegisters = 8, kPanelRegisters = 12, kPanelOrder = 384;
#define VCDEPLOY_UNROLL_COLUMNS _Pragma("GCC unroll 4")
#endif

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
static inline Rows whole_to_float(Counts x) { return to_float(x.low, x.high); }

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

}  // namespace vcdeploy::VCDEPLOY_ISA
