// The equations of the units, row by row (docs/design.md, section 1). One warp computes one row.
//
// A row reads 2 * gates * extent weights (two matrix rows for VCRNN, six for VCGRU, eight for VCLSTM), each used in one
// multiply-add. hbar, xbar and r ⊙ hbar come from the block's own memory.
#pragma once

#include "../common/spec.h"
#include "scheduler.cuh"

namespace vcdeploy {

// What a row needs of its step. h, hbar and xbar are in the block's own memory, [D] each.
template <class Weight, class Real>
struct Step {
    const Weight *U, *V;
    int D, vector, extent;
    Mask<Real> mask;
    const Real *h, *hbar, *xbar;
};

// A unit's row of spec.h as constants that device code can use.
template <Unit unit>
struct Facts {
    static constexpr int gates = spec_of(unit).gates;
    static constexpr bool resets = spec_of(unit).resets, has_cell = spec_of(unit).has_cell();
};

struct VCRNN : Facts<Unit::vcrnn> {

    template <class Weight, class Real>
    static VCDEPLOY_DEVICE Real row(const Step<Weight, Real>& s, int i, Real&) {
        Real sums[1];
        multiply<1, 1>(s.U, s.V, s.D, s.vector, i, s.hbar, s.xbar, s.extent, sums);
        return blend(s.mask(i), hyperbolic_tangent(sums[0]), s.h[i]);
    }
};

// In two phases, since the product with U_h needs r ⊙ hbar of all rows. V_h xbar is part of the first phase, so that
// only one matrix is left after the barrier.
struct VCGRU : Facts<Unit::vcgru> {

    // Returns r ⊙ hbar of row i; sets z and from_input, which is V_h xbar, for `row` below.
    template <class Weight, class Real>
    static VCDEPLOY_DEVICE Real reset(const Step<Weight, Real>& s, int i, Real& z, Real& from_input) {
        Real sums[3];
        multiply<2, 3>(s.U, s.V, s.D, s.vector, i, s.hbar, s.xbar, s.extent, sums);
        z = s.mask(i) * sigmoid(sums[1]);
        from_input = sums[2];
        return sigmoid(sums[0]) * s.hbar[i];
    }

    template <class Weight, class Real>
    static VCDEPLOY_DEVICE Real row(const Step<Weight, Real>& s, int i, const Real* reset, Real z, Real from_input) {
        const Weight* U_h = s.U + 2 * std::size_t(s.D) * s.D;
        Real sums[1];
        multiply<1, 0>(U_h, s.V, s.D, s.vector, i, reset, reset, s.extent, sums);
        return blend(z, hyperbolic_tangent(sums[0] + from_input), s.h[i]);
    }
};

struct VCLSTM : Facts<Unit::vclstm> {

    template <class Weight, class Real>
    static VCDEPLOY_DEVICE Real row(const Step<Weight, Real>& s, int i, Real& cell) {
        Real sums[4];  // i, f, g, o
        multiply<4, 4>(s.U, s.V, s.D, s.vector, i, s.hbar, s.xbar, s.extent, sums);
        const Real e = s.mask(i);
        cell = blend(e, multiply_add(sigmoid(sums[1]), cell, sigmoid(sums[0]) * hyperbolic_tangent(sums[2])), cell);
        return blend(e, sigmoid(sums[3]) * hyperbolic_tangent(cell), s.h[i]);
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
