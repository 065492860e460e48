// What a step multiplies: e ⊙ h and what is left of e ⊙ x, and if quantized their largest magnitudes and levels.
//
// Included by kernels.cpp after simd/simd.h.
#pragma once

#include "kernels/table.h"
#include "weights/layout.h"

namespace vcdeploy::VCDEPLOY_ISA {

// Sixteen of n values from i on; 0 past the last one. The values need not be aligned.
static inline Rows load_some(const float* values, int i, int n) {
    if (i + kPanel <= n) return load_unaligned(values + i);
    alignas(64) float rows[kPanel] = {};
    for (int k = 0; i + k < n; ++k) rows[k] = values[i + k];
    return load(rows);
}

static float largest(const float* values, int n) {
    Magnitudes most;
    for (int i = 0; i < n; i += kPanel) most.add(load_some(values, i, n));
    return most.largest();
}

// Sets a panel's levels of x to the nearest whole numbers.
static inline void store_levels(const Activations& x, int at, Rows levels) {
    if (x.level_8)
        store_whole(x.level_8 + at, levels);
    else
        store_whole(x.level + at, levels);
}

static void quantize(const Activations& x, int begin, int end) {
    const Rows levels = all(x.levels_of_one);
    for (int i = begin / kPanel * kPanel; i < end; i += kPanel) store_levels(x, i, load(x.value + i) * levels);
}

// e ⊙ x; 0 where e is 0, even if x is not finite.
static inline Rows masked(Rows e, Rows x) { return unless_zero(e, all(0), e * x); }

static float mask_state(const float* e, const float* h, int active, float* hbar) {
    Magnitudes most;
    for (int i = 0; i < rounded_up(active, kShell); i += kPanel) {
        const Rows x = masked(load(e + i), load(h + i));
        store(hbar + i, x);
        most.add(x);
    }
    return most.largest();
}

static void mask_input(const InputCall& call) {
    const Rows levels = all(call.levels_of_one);
    for (int i = call.begin / kPanel * kPanel; i < call.end; i += kPanel) {
        const Rows x = load_some(call.x, i, call.dim);
        const Rows xbar = i < call.active ? masked(load(call.e + i), x) : all(0);
        const Rows known = load_some(call.x, i, call.known);
        if (call.level)
            store_whole_difference(call.level + i, xbar * levels, known * levels);
        else if (call.level_8)
            store_whole_difference(call.level_8 + i, xbar * levels, known * levels);
        else
            store(call.value + i, xbar - known);
    }
}

}  // namespace vcdeploy::VCDEPLOY_ISA
