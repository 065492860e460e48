// Device arithmetic: sums in twice the precision, activations, and rows of weights times vectors.
#pragma once

#include "call.h"
#include "device.cuh"

namespace vcdeploy {

constexpr int kWarp = 32;

// A compensated sum, high + low. high is the plain sum; low collects the rounding errors of the additions, so that the
// result is as accurate as in twice the precision, without the slow double arithmetic of most GPUs.
template <class Real>
struct DoubledSum {
    Real high = 0, low = 0;

    VCDEPLOY_DEVICE void add(Real value) {
        const Real total = sum(high, value);
        const Real of_value = sum(total, -high);
        low = sum(low, sum(sum(high, -sum(total, -of_value)), sum(value, -of_value)));
        high = total;
    }

    VCDEPLOY_DEVICE void add_product(Real a, Real b) {
        const Real rounded = product(a, b);
        add(rounded);
        low = sum(low, multiply_add(a, b, -rounded));
    }

    // Symmetric: both orders give the same bits.
    VCDEPLOY_DEVICE void add(const DoubledSum& other) {
        const Real apart = sum(low, other.low);
        low = 0;
        add(other.high);
        low = sum(low, apart);
    }

    // On overflow low is NaN (infinity - infinity) and high is correct.
    VCDEPLOY_DEVICE Real total() const { return is_finite(high) ? sum(high, low) : high; }
};

// Sums groups of `lanes` lanes, a power of two, as a tree: the same bits in every lane of a group.
template <class Real>
VCDEPLOY_DEVICE DoubledSum<Real> over_lanes(DoubledSum<Real> value, int lanes) {
    for (int apart = 1; apart < lanes; apart *= 2)
        value.add(DoubledSum<Real>{shuffle_xor(value.high, apart), shuffle_xor(value.low, apart)});
    return value;
}

template <class Real>
VCDEPLOY_DEVICE Real sigmoid(Real x) {
    return Real(1) / (Real(1) + exponential(-x));
}

// w * fresh + (1 - w) * old; if w is 0, exactly the bits of old.
template <class Real>
VCDEPLOY_DEVICE Real blend(Real w, Real fresh, Real old) {
    return w == 0 ? old : multiply_add(w, fresh, (Real(1) - w) * old);
}

template <class Number, int Count>
struct alignas(sizeof(Number) * Count < 16 ? sizeof(Number) * Count : 16) Pack {
    Number at[Count];
};

// Adds one slice's part of a row of U times `state` and of V times `input`: column blocks slice, slice + slices, …
//     sums[g] += U[First + g, row, …] · state  for g < OfState,  V[g, row, …] · input  for g < OfInput
// U and V are packed (packed_place in call.h); extent is a multiple of kPanel. Lanes with neighbouring rows read
// neighbouring 16 bytes of weights, and lanes of a slice read the same 16 bytes of a vector. With fewer than 8 matrices,
// the weights of the next column block are loaded before those of this one are used.
template <int Gates, int First, int OfState, int OfInput, class Weight, class Real>
VCDEPLOY_DEVICE void multiply(const Weight* U, const Weight* V, int D, int row, int slice, int slices,
                              const Real* state, const Real* input, int extent, Real* sums) {
    constexpr int columns = columns_of<Weight>, step = kPanel * columns;  // from one gate's rows to the next
    using Weights = Pack<Weight, columns>;
    using Numbers = Pack<Real, columns>;
    const int end = extent / columns;
    if (slice >= end) return;
    std::size_t at = packed_place<Weight>(D, Gates, slice, row);
    const std::size_t stride = packed_place<Weight>(D, Gates, slices, 0);
    constexpr int matrices = OfState + OfInput;
    constexpr bool ahead =
        matrices < 8;  // eight loads of 16 bytes are enough in flight, and more would spill registers
    Weights now[matrices], next[ahead ? matrices : 1];
    const auto fetch = [&](Weights* to) {
#pragma unroll
        for (int g = 0; g < OfState; ++g)
            to[g] = read_constant(reinterpret_cast<const Weights*>(U + at + (First + g) * step));
#pragma unroll
        for (int g = 0; g < OfInput; ++g)
            to[OfState + g] = read_constant(reinterpret_cast<const Weights*>(V + at + g * step));
        at += stride;
    };
    fetch(now);
    for (int c = slice;;) {
        const bool more = c + slices < end;
        if constexpr (ahead)
            if (more) fetch(next);
        const Numbers hs = load(reinterpret_cast<const Numbers*>(state + c * columns));
#pragma unroll
        for (int g = 0; g < OfState; ++g)
#pragma unroll
            for (int k = 0; k < columns; ++k) sums[g] = multiply_add(widened<Real>(now[g].at[k]), hs.at[k], sums[g]);
        if constexpr (OfInput > 0) {
            const Numbers xs = load(reinterpret_cast<const Numbers*>(input + c * columns));
#pragma unroll
            for (int g = 0; g < OfInput; ++g)
#pragma unroll
                for (int k = 0; k < columns; ++k)
                    sums[g] = multiply_add(widened<Real>(now[OfState + g].at[k]), xs.at[k], sums[g]);
        }
        if (!more) return;
        if constexpr (ahead) {
#pragma unroll
            for (int g = 0; g < matrices; ++g) now[g] = next[g];
        } else {
            fetch(now);
        }
        c += slices;
    }
}

}  // namespace vcdeploy
