// The equations of the three units and their derivatives, row by row (docs/design.md, section 1), as plain loops that
// the compiler vectorizes for each instruction set. A dense unit has those of its variable unit, with a mask of ones.
//
// A leading d means the gradient of the loss with respect to what follows; d_k is that of gate k's pre-activation.
// e' = slope e (1 - e) is de/dm. Included by kernels.cpp after lanes.h.
#pragma once

#include <cmath>

#include "simd/dot.h"
#include "simd/exponential.h"
#include "training/kernel_table.h"

#if defined(__GNUC__) || defined(__clang__)
#define VCDEPLOY_ROWS _Pragma("omp simd")
#define VCDEPLOY_ROWS_SUMMING(sum) VCDEPLOY_PRAGMA(omp simd reduction(+ : sum))
#define VCDEPLOY_PRAGMA(text) _Pragma(#text)
#else
#define VCDEPLOY_ROWS
#define VCDEPLOY_ROWS_SUMMING(sum)
#endif

namespace vcdeploy::training::VCDEPLOY_ISA {

static inline float exponential(float x) { return vcdeploy::VCDEPLOY_ISA::exponential(x); }
static inline double exponential(double x) { return std::exp(x); }

template <class T>
static inline T sigmoid(T x) {
    return T(1) / (T(1) + exponential(-x));
}
static inline float hyperbolic(float x) {
    const float s = exponential(-2.0f * x);
    return (1.0f - s) / (1.0f + s);
}
static inline double hyperbolic(double x) { return std::tanh(x); }

// w fresh + (1 - w) old; where w is 0, old bit for bit.
template <class T>
static inline T blend(T w, T fresh, T old) {
    const T mixed = w * fresh + (T(1) - w) * old;
    return w == T(0) ? old : mixed;
}

template <class T>
struct VCRNN {
    static void activate(const Rows<T>& t, int begin, int end) {
        T* g = t.gates;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) g[i] = hyperbolic(g[i]);
    }

    static void update(const Rows<T>& t, int begin, int end) {
        const T *e = t.e, *g = t.gates, *h = t.h;
        T* next = t.next;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) next[i] = blend(e[i], g[i], h[i]);
    }

    static T backward(const Rows<T>& t, int end) {
        const T *e = t.e, *g = t.gates, *h = t.h;
        T *dh = t.dh, *d = t.d;
        const T slope = t.slope;
        T dm = 0;
        VCDEPLOY_ROWS_SUMMING(dm)
        for (int i = 0; i < end; ++i) {
            d[i] = dh[i] * e[i] * (1 - g[i] * g[i]);
            dm += dh[i] * (g[i] - h[i]) * (slope * e[i] * (1 - e[i]));
            dh[i] *= 1 - e[i];
        }
        return dm;
    }

    static constexpr UnitTable<T> kTable{activate, nullptr, update, nullptr, backward, nullptr};
};

// Gates r, s, g; z = e ⊙ s.
template <class T>
struct VCGRU {
    static void activate(const Rows<T>& t, int begin, int end) {
        T *r = t.gates, *s = r + t.plane, *reset = t.reset;
        const T* hbar = t.hbar;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) {
            r[i] = sigmoid(r[i]);
            s[i] = sigmoid(s[i]);
            reset[i] = r[i] * hbar[i];
        }
    }

    static void activate_reset(const Rows<T>& t, int begin, int end) {
        T* g = t.gates + 2 * t.plane;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) g[i] = hyperbolic(g[i]);
    }

    static void update(const Rows<T>& t, int begin, int end) {
        const T *e = t.e, *h = t.h, *s = t.gates + t.plane, *g = s + t.plane;
        T* next = t.next;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) next[i] = blend(e[i] * s[i], g[i], h[i]);
    }

    static T backward(const Rows<T>& t, int end) {
        const T *e = t.e, *h = t.h, *s = t.gates + t.plane, *g = s + t.plane;
        T *dh = t.dh, *d_s = t.d + t.d_plane, *d_g = d_s + t.d_plane;
        const T slope = t.slope;
        T dm = 0;
        VCDEPLOY_ROWS_SUMMING(dm)
        for (int i = 0; i < end; ++i) {
            const T z = e[i] * s[i], of_s = dh[i] * (g[i] - h[i]) * s[i];
            d_g[i] = dh[i] * z * (1 - g[i] * g[i]);
            d_s[i] = of_s * e[i] * (1 - s[i]);
            dm += of_s * (slope * e[i] * (1 - e[i]));
            dh[i] *= 1 - z;
        }
        return dm;
    }

    static void backward_reset(const Rows<T>& t, int begin, int end) {
        const T *e = t.e, *h = t.h, *r = t.gates;
        T *d_r = t.d, *dbar = t.dbar;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) {
            d_r[i] = dbar[i] * (e[i] * h[i]) * r[i] * (1 - r[i]);
            dbar[i] *= r[i];
        }
    }

    static constexpr UnitTable<T> kTable{activate, activate_reset, update, nullptr, backward, backward_reset};
};

// Gates i, f, g, o.
template <class T>
struct VCLSTM {
    static void activate(const Rows<T>& t, int begin, int end) {
        T *in = t.gates, *forget = in + t.plane, *g = forget + t.plane, *out = g + t.plane;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) {
            in[i] = sigmoid(in[i]);
            forget[i] = sigmoid(forget[i]);
            g[i] = hyperbolic(g[i]);
            out[i] = sigmoid(out[i]);
        }
    }

    static void update(const Rows<T>& t, int begin, int end) {
        const T *e = t.e, *h = t.h, *in = t.gates, *forget = in + t.plane, *g = forget + t.plane, *out = g + t.plane;
        T *c = t.c, *next = t.next;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) {
            c[i] = blend(e[i], forget[i] * c[i] + in[i] * g[i], c[i]);
            next[i] = blend(e[i], out[i] * hyperbolic(c[i]), h[i]);
        }
    }

    static void update_cell(const Rows<T>& t, int begin, int end) {
        const T *e = t.e, *in = t.gates, *forget = in + t.plane, *g = forget + t.plane;
        T* c = t.c;
        VCDEPLOY_ROWS
        for (int i = begin; i < end; ++i) c[i] = blend(e[i], forget[i] * c[i] + in[i] * g[i], c[i]);
    }

    static T backward(const Rows<T>& t, int end) {
        const T *e = t.e, *h = t.h, *in = t.gates, *forget = in + t.plane, *g = forget + t.plane, *out = g + t.plane;
        const T* c = t.c;
        T *dh = t.dh, *dc = t.dc, *d_i = t.d, *d_f = d_i + t.d_plane, *d_g = d_f + t.d_plane, *d_o = d_g + t.d_plane;
        const T slope = t.slope;
        T dm = 0;
        VCDEPLOY_ROWS_SUMMING(dm)
        for (int i = 0; i < end; ++i) {
            const T fresh = forget[i] * c[i] + in[i] * g[i];
            const T squashed = hyperbolic(e[i] * fresh + (1 - e[i]) * c[i]);
            const T of_c = dc[i] + dh[i] * e[i] * out[i] * (1 - squashed * squashed);
            d_i[i] = of_c * e[i] * g[i] * in[i] * (1 - in[i]);
            d_f[i] = of_c * e[i] * c[i] * forget[i] * (1 - forget[i]);
            d_g[i] = of_c * e[i] * in[i] * (1 - g[i] * g[i]);
            d_o[i] = dh[i] * e[i] * squashed * out[i] * (1 - out[i]);
            dm += (dh[i] * (out[i] * squashed - h[i]) + of_c * (fresh - c[i])) * (slope * e[i] * (1 - e[i]));
            dc[i] = of_c * (e[i] * forget[i] + (1 - e[i]));
            dh[i] *= 1 - e[i];
        }
        return dm;
    }

    static constexpr UnitTable<T> kTable{activate, nullptr, update, update_cell, backward, nullptr};
};

template <class T>
static T slope_dot(T slope, const T* e, const T* a, const T* b, int n) {
    T sum = 0;
    VCDEPLOY_ROWS_SUMMING(sum)
    for (int i = 0; i < n; ++i) sum += a[i] * b[i] * (slope * e[i] * (1 - e[i]));
    return sum;
}

template <class T>
static void scale(const T* e, const T* x, T* out, int n) {
    VCDEPLOY_ROWS
    for (int i = 0; i < n; ++i) out[i] = e[i] * x[i];
}

template <class T>
static void add_scaled(T factor, const T* x, T* out, int n) {
    VCDEPLOY_ROWS
    for (int i = 0; i < n; ++i) out[i] += factor * x[i];
}

template <class T>
static void add_product(const T* e, const T* x, T* out, int n) {
    VCDEPLOY_ROWS
    for (int i = 0; i < n; ++i) out[i] += e[i] * x[i];
}

template <class T>
static constexpr Table<T> kTable{kPanelRows<T>,
                                 multiply<T>,
                                 multiply_outer<T>,
                                 mask_panels<T>,
                                 vcdeploy::VCDEPLOY_ISA::dot<T>,
                                 slope_dot<T>,
                                 scale<T>,
                                 add_scaled<T>,
                                 add_product<T>,
                                 {VCRNN<T>::kTable,
                                  VCGRU<T>::kTable,
                                  VCLSTM<T>::kTable,  // variable, then dense
                                  VCRNN<T>::kTable,
                                  VCGRU<T>::kTable,
                                  {},
                                  VCLSTM<T>::kTable}};

}  // namespace vcdeploy::training::VCDEPLOY_ISA
