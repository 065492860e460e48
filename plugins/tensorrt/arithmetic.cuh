// Device arithmetic: warp sums, sums in twice the precision, activations, and rows of weights times vectors.
#pragma once

#include "device.cuh"

namespace vcdeploy {

constexpr int kWarp = 32;

template <class Real>
VCDEPLOY_DEVICE Real over_lanes(Real value) {
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
    return value;  // bitwise equal in every lane, since addition is commutative
}

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

    VCDEPLOY_DEVICE void add(const DoubledSum& other) {
        add(other.high);
        low = sum(low, other.low);
    }

    // On overflow low is NaN (infinity - infinity) and high is correct.
    VCDEPLOY_DEVICE Real total() const { return is_finite(high) ? sum(high, low) : high; }
};

template <class Real>
VCDEPLOY_DEVICE DoubledSum<Real> over_lanes(DoubledSum<Real> value) {
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
        value.add(DoubledSum<Real>{shuffle_xor(value.high, lanes), shuffle_xor(value.low, lanes)});
    return value;  // in lane 0; other lanes may differ in the last bits of low
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

// Adds this lane's part of row i of U times `state` and of V times `input`, for gates 0, 1, …:
//     sums[g] += U[g * D + i, :extent] · state  for g < OfState,  V[g * D + i, :extent] · input  for g < OfInput
// extent is D or a multiple of Columns; D is a multiple of Columns.
template <int OfState, int OfInput, int Columns, class Weight, class Real>
VCDEPLOY_DEVICE void multiply_packs(const Weight* U, const Weight* V, int D, int i, const Real* state,
                                    const Real* input, int extent, Real* sums) {
    using Weights = Pack<Weight, Columns>;
    using Numbers = Pack<Real, Columns>;
    const std::size_t gate = std::size_t(D) * D, row = std::size_t(i) * D;
    [[maybe_unused]] constexpr int at_once =
        Columns > 1 && OfState + OfInput > 2 ? 1 : 2;  // enough loads in flight without spilling registers
#pragma unroll at_once
    for (int j = thread() % kWarp * Columns; j < extent; j += kWarp * Columns) {
        Weights of_state[OfState], of_input[OfInput > 0 ? OfInput : 1];
#pragma unroll
        for (int g = 0; g < OfState; ++g)
            of_state[g] = read_constant(reinterpret_cast<const Weights*>(U + g * gate + row + j));
#pragma unroll
        for (int g = 0; g < OfInput; ++g)
            of_input[g] = read_constant(reinterpret_cast<const Weights*>(V + g * gate + row + j));
        const Numbers hs = *reinterpret_cast<const Numbers*>(state + j);
#pragma unroll
        for (int g = 0; g < OfState; ++g)
#pragma unroll
            for (int k = 0; k < Columns; ++k)
                sums[g] = multiply_add(widened<Real>(of_state[g].at[k]), hs.at[k], sums[g]);
        if constexpr (OfInput > 0) {
            const Numbers xs = *reinterpret_cast<const Numbers*>(input + j);
#pragma unroll
            for (int g = 0; g < OfInput; ++g)
#pragma unroll
                for (int k = 0; k < Columns; ++k)
                    sums[g] = multiply_add(widened<Real>(of_input[g].at[k]), xs.at[k], sums[g]);
        }
    }
}

// The same, summed over the lanes of the warp: sets sums[g] in every lane, for g < max(OfState, OfInput).
template <int OfState, int OfInput, class Weight, class Real>
VCDEPLOY_DEVICE void multiply(const Weight* U, const Weight* V, int D, int vector, int i, const Real* state,
                              const Real* input, int extent, Real* sums) {
    constexpr int gates = OfState > OfInput ? OfState : OfInput;
#pragma unroll
    for (int g = 0; g < gates; ++g) sums[g] = 0;
    if (vector > 1)
        multiply_packs<OfState, OfInput, 16 / sizeof(Weight)>(U, V, D, i, state, input, extent, sums);
    else
        multiply_packs<OfState, OfInput, 1>(U, V, D, i, state, input, extent, sums);
#pragma unroll
    for (int g = 0; g < gates; ++g) sums[g] = over_lanes(sums[g]);
}

}  // namespace vcdeploy
