// sigmoid, tanh and the blend of sixteen rows at once, in two arithmetics.
//
// Included by kernels.cpp after simd/simd.h.
#pragma once

#include "simd/exponential.h"

namespace vcdeploy::VCDEPLOY_ISA {

// That of f32, f16 and bf16: within a few units in the last place of 1, with fused operations where there are any.
struct Fused {
    static Rows sigmoid(Rows x) { return all(1.0f) / (all(1.0f) + exponential(all(0.0f) - x)); }

    static Rows tanh(Rows x) {
        const Rows s = exponential(x * all(-2.0f));
        return (all(1.0f) - s) / (all(1.0f) + s);
    }

    // a * b + c
    static Rows multiply_add(Rows a, Rows b, Rows c) { return VCDEPLOY_ISA::multiply_add(a, b, c); }
};

// Past it int8's tanh is 1.
constexpr float kTanhEnd = 6.7452478f;

// That of int8 (docs/design.md, section 2): each operation is rounded by itself, in this order, so that every runtime
// gets the same bits. tanh is the quotient of two polynomials, within 2.8e-6, and never above 1; NaN gives NaN.
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

// w ⊙ fresh + (1 - w) ⊙ old; where w is 0 the very bits of old.
template <class Arithmetic>
static inline Rows blend(Rows w, Rows fresh, Rows old) {
    return unless_zero(w, old, Arithmetic::multiply_add(w, fresh, (all(1.0f) - w) * old));
}

// work(arithmetic) with that of a precision.
template <class Work>
static inline void in_arithmetic_of(Precision precision, Work work) {
    if (precision == Precision::int8)
        work(Plain{});
    else
        work(Fused{});
}

}  // namespace vcdeploy::VCDEPLOY_ISA
