// sigmoid, tanh and blend over sixteen rows, in two arithmetics: Fused (floating point) and Plain (int8, w8a8).
//
// Included by kernels.cpp after simd/simd.h.
#pragma once

#include "simd/exponential.h"

namespace vcdeploy::VCDEPLOY_ISA {

// For f32, f16 and bf16: accurate to a few ULP of 1, with fused operations where the hardware has them.
struct Fused {
    static Rows sigmoid(Rows x) { return all(1.0f) / (all(1.0f) + exponential(all(0.0f) - x)); }

    static Rows tanh(Rows x) {
        const Rows s = exponential(x * all(-2.0f));
        return (all(1.0f) - s) / (all(1.0f) + s);
    }

    // a * b + c
    static Rows multiply_add(Rows a, Rows b, Rows c) { return VCDEPLOY_ISA::multiply_add(a, b, c); }
};

// From here on, Plain's tanh is exactly 1.
constexpr float kTanhEnd = 6.7452478f;

// For int8 and w8a8 (docs/design.md, section 2): each operation is rounded separately, in this order, so that every runtime
// gets the same bits. tanh is a quotient of two polynomials with an error up to 2.8e-6, never above 1. NaN gives NaN.
struct Plain {
    static Rows tanh(Rows x) {
        x = clamp(x, -kTanhEnd, kTanhEnd);
        const Rows y = x * x;
        Rows p = multiply_add(y, all(4.215812e-6f), all(2.33741e-3f));
        Rows q = multiply_add(y, all(1.489102e-4f), all(2.135481e-2f));
        p = multiply_add(p, y, all(1.23704e-1f));
        q = multiply_add(q, y, all(4.570328e-1f));
        p = multiply_add(p, y, all(1.0f));
        q = multiply_add(q, y, all(1.0f));
        return x * p / q;
    }

    static Rows sigmoid(Rows x) { return multiply_add(tanh(x * all(0.5f)), all(0.5f), all(0.5f)); }

    // a * b + c
    static Rows multiply_add(Rows a, Rows b, Rows c) { return a * b + c; }
};

// w ⊙ fresh + (1 - w) ⊙ old; where w is 0, old bit for bit.
template <class Arithmetic>
static inline Rows blend(Rows w, Rows fresh, Rows old) {
    return unless_zero(w, old, Arithmetic::multiply_add(w, fresh, (all(1.0f) - w) * old));
}

// Calls work(arithmetic) with the arithmetic of a precision.
template <class Work>
static inline void in_arithmetic_of(Precision precision, Work work) {
    if (is_quantized(precision))
        work(Plain{});
    else
        work(Fused{});
}

}  // namespace vcdeploy::VCDEPLOY_ISA
