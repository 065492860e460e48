// sigmoid and tanh of sixteen rows at once, within a few units in the last place of 1.
//
// Included by the file of each instruction set after its simd_*.h.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

// e^x = 2^n e^r with r within half of ln 2; the polynomial for e^r is the Cephes library's. NaN gives NaN.
static inline Rows exponential(Rows x) {
    x = clamp(x, -87.0f, 88.0f);  // so that 2^n is neither subnormal nor infinite
    const Rows n = rounded(x * all(1.44269504f));
    Rows r = multiply_add(n, all(-0.693359375f), x);  // ln 2 in two parts: n times the first is exact
    r = multiply_add(n, all(2.12194440e-4f), r);
    Rows p = all(1.9875691500e-4f);
    p = multiply_add(p, r, all(1.3981999507e-3f));
    p = multiply_add(p, r, all(8.3334519073e-3f));
    p = multiply_add(p, r, all(4.1665795894e-2f));
    p = multiply_add(p, r, all(1.6666665459e-1f));
    p = multiply_add(p, r, all(5.0000001201e-1f));
    p = multiply_add(p, r * r, r + all(1.0f));
    return times_power_of_two(p, n);
}

static inline Rows sigmoid(Rows x) { return all(1.0f) / (all(1.0f) + exponential(all(0.0f) - x)); }

static inline Rows tanh(Rows x) {
    const Rows s = exponential(x * all(-2.0f));
    return (all(1.0f) - s) / (all(1.0f) + s);
}

// w ⊙ fresh + (1 - w) ⊙ old; where w is 0 the very bits of old.
static inline Rows blend(Rows w, Rows fresh, Rows old) {
    return unless_zero(w, old, multiply_add(w, fresh, (all(1.0f) - w) * old));
}

}  // namespace vcdeploy::VCDEPLOY_ISA
