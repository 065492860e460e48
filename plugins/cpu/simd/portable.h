// Sixteen rows of a panel for any processor: four vectors of four floats, the register size of SSE2 and NEON.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "weights/precision.h"

namespace vcdeploy::VCDEPLOY_ISA {

constexpr int kRegisters = 4;                                              // per Rows
constexpr int kSumRegisters = 8, kPanelRegisters = 12, kPanelOrder = 384;  // as in avx.h
#define VCDEPLOY_UNROLL_COLUMNS

#ifdef __GNUC__
typedef float Four __attribute__((vector_size(16)));
typedef std::int32_t FourCounts __attribute__((vector_size(16)));
typedef std::uint32_t FourBits __attribute__((vector_size(16)));
#else
// The same, for compilers without vector types.
template <class T>
struct FourOf {
    T x[4];
    T& operator[](int i) { return x[i]; }
    T operator[](int i) const { return x[i]; }
    friend FourOf operator+(FourOf a, FourOf b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]}; }
    friend FourOf operator-(FourOf a, FourOf b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3]}; }
    friend FourOf operator*(FourOf a, FourOf b) { return {a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]}; }
    friend FourOf operator/(FourOf a, FourOf b) { return {a[0] / b[0], a[1] / b[1], a[2] / b[2], a[3] / b[3]}; }
    friend FourOf operator&(FourOf a, T b) { return {a[0] & b, a[1] & b, a[2] & b, a[3] & b}; }
    friend FourOf operator>>(FourOf a, int n) { return {a[0] >> n, a[1] >> n, a[2] >> n, a[3] >> n}; }
    friend FourOf operator<<(FourOf a, int n) { return {a[0] << n, a[1] << n, a[2] << n, a[3] << n}; }
};
using Four = FourOf<float>;
using FourCounts = FourOf<std::int32_t>;
using FourBits = FourOf<std::uint32_t>;
#endif

// a + b modulo 2^32: sums may wrap around on the way to a result that fits (see start_of).
static inline FourCounts wrapping_sum(FourCounts a, FourCounts b) {
    FourBits x, y;
    std::memcpy(&x, &a, sizeof x);
    std::memcpy(&y, &b, sizeof y);
    x = x + y;
    std::memcpy(&a, &x, sizeof x);
    return a;
}

struct Rows {
    Four a, b, c, d;
};

// Applies f element by element: f(x), or f(x, y) and so on.
template <class F, class... R>
static inline Rows each(F f, R... x) {
    const auto four = [&](const auto&... v) { return Four{f(v[0]...), f(v[1]...), f(v[2]...), f(v[3]...)}; };
    return {four(x.a...), four(x.b...), four(x.c...), four(x.d...)};
}

static inline Rows load(const float* p) {
    Rows x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
static inline Rows load_unaligned(const float* p) { return load(p); }
static inline void store(float* p, Rows x) { std::memcpy(p, &x, sizeof x); }
static inline Rows all(float x) {
    const Four four{x, x, x, x};
    return {four, four, four, four};
}

// first, first + 1, …
static inline Rows numbers_from(float first) {
    const Four low{first, first + 1, first + 2, first + 3}, four{4, 4, 4, 4};
    return {low, low + four, low + four + four, low + four + four + four};
}

static inline Rows operator+(Rows x, Rows y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
static inline Rows operator-(Rows x, Rows y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
static inline Rows operator*(Rows x, Rows y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
static inline Rows operator/(Rows x, Rows y) { return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d}; }

// x * y + z
static inline Rows multiply_add(Rows x, Rows y, Rows z) {
#ifdef __FP_FAST_FMAF
    return each([](float a, float b, float c) { return __builtin_fmaf(a, b, c); }, x, y, z);
#else
    return x * y + z;
#endif
}

// Clamps x to the bounds. NaN stays NaN, since every comparison with it is false.
static inline Rows clamp(Rows x, float least, float most) {
    return each([=](float f) { return f < least ? least : f > most ? most : f; }, x);
}

// Rounds to the nearest integer, for |x| below 2^22: near 1.5 · 2^23 a float has no fraction bits.
static inline Rows rounded(Rows x) {
    const Rows large = all(12582912.0f);
    return (x + large) - large;
}

// x * 2^n for integers n from -126 to 127; if n is NaN, so is x.
static inline Rows times_power_of_two(Rows x, Rows n) {
    const auto scale = [](float f, float power) {
        const std::int32_t bits = (static_cast<std::int32_t>(power == power ? power : 0.0f) + 127) << 23;
        float factor;
        std::memcpy(&factor, &bits, sizeof factor);
        return f * factor;
    };
    return each(scale, x, n);
}

// `old` bit for bit where e is 0, else x.
static inline Rows unless_zero(Rows e, Rows old, Rows x) {
    return each([](float mask, float before, float after) { return mask == 0 ? before : after; }, e, old, x);
}

// 1 where x is above `most`, 0 where it is below `least`, else x.
static inline Rows thresholded(Rows x, float least, float most) {
    return each([=](float f) { return f > most ? 1.0f : f < least ? 0.0f : f; }, x);
}

// Bit r is set if row r is above the bound.
static inline std::uint32_t rows_above(Rows x, float bound) {
    float rows[16];
    store(rows, x);
    std::uint32_t bits = 0;
    for (int r = 0; r < 16; ++r) bits |= static_cast<std::uint32_t>(rows[r] > bound) << r;
    return bits;
}

static inline float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The bits of the larger magnitude per row; NaN is the largest.
struct Magnitudes {
    std::uint32_t bits[16] = {};

    void add(Rows x) {
        std::uint32_t rows[16];
        std::memcpy(rows, &x, sizeof rows);
        for (int r = 0; r < 16; ++r) {
            const std::uint32_t magnitude = rows[r] & 0x7fffffffu;
            bits[r] = magnitude > bits[r] ? magnitude : bits[r];
        }
    }
    float largest() const {
        std::uint32_t most = 0;
        for (const std::uint32_t each : bits) most = each > most ? each : most;
        return float_of(most);
    }
};

// Branch-free: signs are random, and the compiler can vectorize it.
static inline float widened_one(Half w) {
    const std::uint32_t magnitude = (w.bits & 0x7fffu) << 13;
    const std::uint32_t subnormal = 0u - static_cast<std::uint32_t>(magnitude < (1u << 23));  // all ones or zero
    // The exponent biases differ by 112. A subnormal has no leading 1: add one, then subtract it.
    const float leading = float_of(magnitude + (112u << 23) + (subnormal & (1u << 23)));
    const float value = leading - float_of(subnormal & (113u << 23));
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return float_of(bits | (w.bits & 0x8000u) << 16);
}
static inline float widened_one(Bfloat16 w) { return float_of(static_cast<std::uint32_t>(w.bits) << 16); }

// Sixteen weights as floats.
static inline Rows widened(const float* w) { return load(w); }
static inline Rows widened(const Half* w) {
    float wide[16];
    for (int i = 0; i < 16; ++i) wide[i] = widened_one(w[i]);
    return load(wide);
}
static inline Rows widened(const Bfloat16* w) {
    float wide[16];
    for (int i = 0; i < 8; ++i) {
        wide[i] = widened_one(w[2 * i]);
        wide[i + 8] = widened_one(w[2 * i + 1]);
    }
    return load(wide);
}

// Sixteen int32 sums.
struct Counts {
    FourCounts a, b, c, d;
};

static inline Counts operator+(Counts x, Counts y) {
    return {wrapping_sum(x.a, y.a), wrapping_sum(x.b, y.b), wrapping_sum(x.c, y.c), wrapping_sum(x.d, y.d)};
}

static inline Counts load(const std::int32_t* p) {
    Counts x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
static inline void store(std::int32_t* p, Counts x) { std::memcpy(p, &x, sizeof x); }

// The initial sums if the levels add up to `total`: compensates for the 128 added to the weights of the first eight
// rows. Wraps around; the sums of products added to it wrap back.
static inline Counts start_of(std::int32_t total) {
    const auto less = static_cast<std::int32_t>(static_cast<std::uint32_t>(total) * -128u);
    const FourCounts added{less, less, less, less}, none{0, 0, 0, 0};
    return {added, added, none, none};
}

// Two columns of rows r and r + 8 per int32 (layout.h): the columns of row r, with 128 added, in bytes 0 and 2, those
// of row r + 8 in bytes 1 and 3.
struct ColumnPair {
    FourCounts a, b;  // r = 0 to 3, 4 to 7
};

// Sixteen bytes as four int32, the first byte the lowest.
static inline FourCounts four_lanes(const std::uint8_t* w) {
    FourCounts lanes;
    if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(&lanes, w, sizeof lanes);
        return lanes;
    }
    std::uint32_t lane[4];
    for (int i = 0; i < 4; ++i)
        lane[i] = static_cast<std::uint32_t>(w[4 * i + 3]) << 24 | static_cast<std::uint32_t>(w[4 * i + 2]) << 16 |
                  static_cast<std::uint32_t>(w[4 * i + 1]) << 8 | w[4 * i];
    std::memcpy(&lanes, lane, sizeof lanes);
    return lanes;
}

static inline ColumnPair column_pair(const std::uint8_t* w) { return {four_lanes(w), four_lanes(w + 16)}; }

// Adds a pair of columns times a pair of levels.
static inline Counts multiply_add(ColumnPair w, const std::int16_t* levels, Counts sum) {
    const FourCounts first{levels[0], levels[0], levels[0], levels[0]};
    const FourCounts second{levels[1], levels[1], levels[1], levels[1]};
    const auto low = [&](FourCounts v) { return (v & 255) * first + (v >> 16 & 255) * second; };
    const auto high = [&](FourCounts v) { return (v << 16 >> 24) * first + (v >> 24) * second; };
    return sum + Counts{low(w.a), low(w.b), high(w.a), high(w.b)};
}

// Four columns of sixteen rows in w8a8: those of a row, with 128 added, in the bytes of an int32.
struct ColumnGroup {
    FourCounts rows[4];
};

static inline ColumnGroup column_group(const std::uint8_t* w) {
    return {{four_lanes(w), four_lanes(w + 16), four_lanes(w + 32), four_lanes(w + 48)}};
}

using ByteLevels = const std::int8_t*;

static inline ByteLevels spread(const std::int8_t* levels) { return levels; }

// Adds four columns times four levels.
static inline Counts multiply_add(const ColumnGroup& w, const std::int8_t* levels, Counts sum) {
    const auto all_lanes = [](std::int32_t x) { return FourCounts{x, x, x, x}; };
    const FourCounts a = all_lanes(levels[0]), b = all_lanes(levels[1]), c = all_lanes(levels[2]),
                     d = all_lanes(levels[3]);
    const auto products = [&](FourCounts v) {
        return (v & 255) * a + (v >> 8 & 255) * b + (v >> 16 & 255) * c + (v >> 24 & 255) * d;
    };
    return sum + Counts{products(w.rows[0]), products(w.rows[1]), products(w.rows[2]), products(w.rows[3])};
}

// The initial sums if the levels add up to `total`: compensates for the 128 added to the weights.
static inline Counts start_of_bytes(std::int32_t total) {
    const FourCounts less = start_of(total).a;
    return {less, less, less, less};
}

// Stores sixteen numbers, rounded half to even; beyond the range of Level the nearest one it has, for NaN the largest.
template <class Level>
static inline void store_whole(Level* p, Rows x) {
    constexpr float most = std::numeric_limits<Level>::max(), least = std::numeric_limits<Level>::min();
    const auto within = [](float f) { return f < most ? (f > least ? f : least) : most; };
    float whole[16];
    store(whole, rounded(each(within, x)));
    for (int i = 0; i < 16; ++i) p[i] = static_cast<Level>(whole[i]);
}
// The same of x, less the same of y.
template <class Level>
static inline void store_whole_difference(Level* p, Rows x, Rows y) {
    Level known[16];
    store_whole(p, x);
    store_whole(known, y);
    for (int i = 0; i < 16; ++i) p[i] = static_cast<Level>(p[i] - known[i]);
}
// The sums themselves, after accumulation.
static inline Counts settled(Counts x) { return x; }
static inline Rows whole_to_float(Counts x) {
    const auto four = [](FourCounts v) {
        return Four{static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]),
                    static_cast<float>(v[3])};
    };
    return {four(x.a), four(x.b), four(x.c), four(x.d)};
}

// The sum of levels [begin, end), extended to whole panels of sixteen.
template <class Level>
static inline std::int32_t total_of(const Level* levels, int begin, int end) {
    std::int32_t total = 0;
    for (int i = begin / 16 * 16; i < (end + 15) / 16 * 16; ++i) total += levels[i];
    return total;
}

// Adds a_i b_i to sum[i mod 16] for n elements, a multiple of 16.
static inline void add_products(const float* a, const float* b, int n, double sum[16]) {
    for (int i = 0; i < n; i += 16)
        for (int lane = 0; lane < 16; ++lane)
            sum[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
}

}  // namespace vcdeploy::VCDEPLOY_ISA
