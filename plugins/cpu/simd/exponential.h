// e^x of a float, of Rows or of a double; the one implementation for inference, training and sampling.
//
// Included after simd/simd.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace vcdeploy::VCDEPLOY_ISA {

// The operations exponential() needs, for one float; the compiler vectorizes loops over them.
static inline float filled(float, float x) { return x; }
static inline float clamp(float x, float least, float most) { return x < least ? least : x > most ? most : x; }
static inline float rounded(float x) { return (x + 12582912.0f) - 12582912.0f; }
static inline float multiply_add(float a, float b, float c) { return a * b + c; }
static inline float times_power_of_two(float x, float n) {
    const float shifted = n + 12582912.0f;  // 1.5 · 2^23: the low bits of the sum are n
    std::uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (127u << 23);
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return x * power;
}

// A constant in every row.
static inline Rows filled(Rows, float x) { return all(x); }

// e^x = 2^n e^r with |r| up to (ln 2)/2; the polynomial for e^r is that of the Cephes library. NaN gives NaN.
template <class V>
static inline V exponential(V x) {
    const auto constant = [&x](float value) { return filled(x, value); };
    x = clamp(x, -87.0f, 88.0f);  // so that 2^n is neither subnormal nor infinite
    const V n = rounded(x * constant(1.44269504f));
    V r = multiply_add(n, constant(-0.693359375f), x);  // ln 2 in two parts; n times the first part is exact
    r = multiply_add(n, constant(2.12194440e-4f), r);
    V p = constant(1.9875691500e-4f);
    p = multiply_add(p, r, constant(1.3981999507e-3f));
    p = multiply_add(p, r, constant(8.3334519073e-3f));
    p = multiply_add(p, r, constant(4.1665795894e-2f));
    p = multiply_add(p, r, constant(1.6666665459e-1f));
    p = multiply_add(p, r, constant(5.0000001201e-1f));
    p = multiply_add(p, r * r, r + constant(1.0f));
    return times_power_of_two(p, n);
}

// e^x of a double up to 0, within an ULP or so; below -700 as if x were -700. The quotient for e^r is that of the
// Cephes library. The compiler vectorizes loops over it.
static inline double exponential(double x) {
    x = x < -700.0 ? -700.0 : x;
    const double shifted = x * 1.4426950408889634 + 6755399441055744.0;  // 1.5 · 2^52: the low bits of the sum are n
    const double n = shifted - 6755399441055744.0;
    double r = x - n * 6.93145751953125e-1;  // ln 2 in two parts; n times the first part is exact
    r -= n * 1.42860682030941723212e-6;
    const double y = r * r;
    const double p = r * ((1.26177193074810590878e-4 * y + 3.02994407707441961300e-2) * y + 1.0);
    const double q =
        ((3.00198505138664455042e-6 * y + 2.52448340349684104192e-3) * y + 2.27265548208155028766e-1) * y + 2.0;
    std::uint64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + (std::uint64_t{1023} << 52);
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return (1.0 + 2.0 * (p / (q - p))) * power;
}

}  // namespace vcdeploy::VCDEPLOY_ISA
