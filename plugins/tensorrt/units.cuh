// The equations of the units for one dimension, from the sums of its rows (docs/design.md, section 1).
//
// A row reads 2 * gates * extent weights (two matrix rows for VCRNN, six for VCGRU, eight for VCLSTM), each used in one
// multiply-add.
#pragma once

#include "../common/spec.h"
#include "scheduler.cuh"

namespace vcdeploy {

// A unit's row of spec.h as constants that device code can use.
template <Unit unit>
struct Facts {
    static constexpr int gates = spec_of(unit).gates;
    static constexpr bool resets = spec_of(unit).resets, has_cell = spec_of(unit).has_cell();
};

// sums: U hbar + V xbar of every gate. e, h: the dimension's mask and state.
struct VCRNN : Facts<Unit::vcrnn> {
    template <class Real>
    static VCDEPLOY_DEVICE Real updated(const Real* sums, Real e, Real h, Real&) {
        return blend(e, hyperbolic_tangent(sums[0]), h);
    }
};

// In two phases, since the product with U_h needs r ⊙ hbar of all rows. V_h xbar is part of the first phase, so that
// only one matrix is left after the barrier.
struct VCGRU : Facts<Unit::vcgru> {
    // sums: of r and z, and V_h xbar. Returns r ⊙ hbar; sets z.
    template <class Real>
    static VCDEPLOY_DEVICE Real reset(const Real* sums, Real e, Real hbar, Real& z) {
        z = e * sigmoid(sums[1]);
        return sigmoid(sums[0]) * hbar;
    }

    template <class Real>
    static VCDEPLOY_DEVICE Real updated(Real of_reset, Real from_input, Real z, Real h) {
        return blend(z, hyperbolic_tangent(of_reset + from_input), h);
    }
};

struct VCLSTM : Facts<Unit::vclstm> {
    template <class Real>
    static VCDEPLOY_DEVICE Real updated(const Real* sums, Real e, Real h, Real& cell) {  // i, f, g, o
        cell = blend(e, multiply_add(sigmoid(sums[1]), cell, sigmoid(sums[0]) * hyperbolic_tangent(sums[2])), cell);
        return blend(e, sigmoid(sums[3]) * hyperbolic_tangent(cell), h);
    }
};

// Calls use(kind) with the equations of a unit: the only place that maps a row of spec.h to them.
template <class Use>
auto with_unit(Unit unit, const Use& use) {
    switch (unit) {
        case Unit::vcrnn: return use(VCRNN());
        case Unit::vcgru: return use(VCGRU());
        default: return use(VCLSTM());
    }
}

}  // namespace vcdeploy
