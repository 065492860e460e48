// The integer sums of a panel in registers: int32, of Gates × sixteen rows. PanelCounts is for int8, PanelBytes for w8a8.
//
// Included by simd.h after the vector types.
#pragma once

#include <cstdint>
#include <cstring>

namespace vcdeploy::VCDEPLOY_ISA {

#ifdef __AVX512VNNI__

// In registers of 512 bits, which multiply integers 1.5 times faster on a Zen 4 (docs/kernel-notes.md): a register has
// two neighbours of [column pair][gate], so that Gates registers have two column pairs of all gates.
constexpr int kColumnsAtOnce = 4;

// Two pairs of levels, in every combination of the lower and upper half of a register.
struct Levels {
    __m512i first, both, second;
};

static inline Levels spread(const std::int16_t* levels) {
    const auto pair = [=](int from) {
        std::int32_t both;
        std::memcpy(&both, levels + from, sizeof both);
        return _mm512_set1_epi32(both);
    };
    const __m512i first = pair(0), second = pair(2);
    return {first, _mm512_mask_blend_epi32(0xff00, first, second), second};
}

template <int Gates>
struct PanelCounts {
    static constexpr int kRegisters = 2 * Gates;

    __m512i low[Gates], high[Gates];  // as in Counts
};

template <int Gates>
static inline void clear(PanelCounts<Gates>& sum) {
#pragma GCC unroll 8
    for (int i = 0; i < Gates; ++i) sum.low[i] = sum.high[i] = _mm512_setzero_si512();
}

// Adds kColumnsAtOnce columns of weights times each x.
template <int Gates, int Count>
static inline void add_columns(PanelCounts<Gates>* const (&sum)[Count], const std::uint8_t* w,
                               const Levels (&x)[Count]) {
#pragma GCC unroll 8
    for (int i = 0; i < Gates; ++i) {
        __m512i both = _mm512_load_si512(w + i * 64);
        asm("" : "+v"(both));  // GCC would load it twice
        const __m512i high = _mm512_srai_epi16(both, 8);
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) {
            const __m512i levels = 2 * i + 1 < Gates ? x[n].first : 2 * i >= Gates ? x[n].second : x[n].both;
            sum[n]->low[i] = _mm512_dpwssd_epi32(sum[n]->low[i], levels, both);
            sum[n]->high[i] = _mm512_dpwssd_epi32(sum[n]->high[i], levels, high);
        }
    }
}

// The sums of a gate, added to the initial ones.
template <int Gates>
static inline Counts product_of(const PanelCounts<Gates>& sum, int gate, Counts initial) {
    const auto half = [](__m512i x, int which) {
        return which ? _mm512_extracti64x4_epi64(x, 1) : _mm512_castsi512_si256(x);
    };
    const auto total = [&](const __m512i* of) {
        const int other = Gates + gate;
        return _mm256_add_epi32(half(of[gate / 2], gate % 2), half(of[other / 2], other % 2));
    };
    return settled(Counts{total(sum.low), total(sum.high)} + initial);
}

// A register has four columns of a gate, and one of sums all its rows. At least eight sums hide the latency of the
// instruction.
constexpr int kByteSumRegisters = 16;

using ByteLevels = __m512i;

static inline ByteLevels spread(const std::int8_t* levels) {
    std::int32_t four;
    std::memcpy(&four, levels, sizeof four);
    return _mm512_set1_epi32(four);
}

template <int Gates>
struct PanelBytes {
    static constexpr int kRegisters = Gates;

    __m512i gate[Gates];
};

template <int Gates>
static inline void clear(PanelBytes<Gates>& sum) {
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) sum.gate[g] = _mm512_setzero_si512();
}

// Adds four columns of weights, with 128 added, times each x.
template <int Gates, int Count>
static inline void add_columns(PanelBytes<Gates>* const (&sum)[Count], const std::uint8_t* w,
                               const ByteLevels (&x)[Count]) {
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
        const __m512i weights = _mm512_load_si512(w + g * 64);
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) sum[n]->gate[g] = _mm512_dpbusd_epi32(sum[n]->gate[g], weights, x[n]);
    }
}

// The initial sums if the levels add up to `total`: compensates for the 128 added to the weights.
static inline Counts start_of_bytes(std::int32_t total) {
    const __m256i less = start_of(total).low;
    return {less, less};
}

template <int Gates>
static inline Counts product_of(const PanelBytes<Gates>& sum, int gate, Counts initial) {
    return Counts{_mm512_castsi512_si256(sum.gate[gate]), _mm512_extracti64x4_epi64(sum.gate[gate], 1)} + initial;
}

#else

constexpr int kColumnsAtOnce = 2;
constexpr int kCountRegisters = kRegisters;  // per Counts

using Levels = const std::int16_t*;

static inline Levels spread(const std::int16_t* levels) { return levels; }

template <int Gates>
struct PanelCounts {
    static constexpr int kRegisters = Gates * kCountRegisters;

    Counts gate[Gates];
};

template <int Gates>
static inline void clear(PanelCounts<Gates>& sum) {
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) sum.gate[g] = start_of(0);
}

// Adds kColumnsAtOnce columns of weights times each x.
template <int Gates, int Count>
static inline void add_columns(PanelCounts<Gates>* const (&sum)[Count], const std::uint8_t* w,
                               const Levels (&x)[Count]) {
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
        const ColumnPair weights = column_pair(w + g * 32);
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) sum[n]->gate[g] = multiply_add(weights, x[n], sum[n]->gate[g]);
    }
}

// The sums of a gate, added to the initial ones.
template <int Gates>
static inline Counts product_of(const PanelCounts<Gates>& sum, int gate, Counts initial) {
    return settled(sum.gate[gate] + initial);
}

constexpr int kByteSumRegisters = kSumRegisters;

template <int Gates>
struct PanelBytes {
    static constexpr int kRegisters = Gates * kCountRegisters;

    Counts gate[Gates];
};

template <int Gates>
static inline void clear(PanelBytes<Gates>& sum) {
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) sum.gate[g] = start_of(0);
}

// Adds four columns of weights times each x.
template <int Gates, int Count>
static inline void add_columns(PanelBytes<Gates>* const (&sum)[Count], const std::uint8_t* w,
                               const ByteLevels (&x)[Count]) {
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
        const ColumnGroup weights = column_group(w + g * 64);
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) sum[n]->gate[g] = multiply_add(weights, x[n], sum[n]->gate[g]);
    }
}

template <int Gates>
static inline Counts product_of(const PanelBytes<Gates>& sum, int gate, Counts initial) {
    return sum.gate[gate] + initial;
}

#endif

}  // namespace vcdeploy::VCDEPLOY_ISA
