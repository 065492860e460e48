// The scheduler: m, the mask e, and how far it reaches (docs/design.md, section 1), in Real throughout.
//
// The logit is a DoubledSum, so that m only has the rounding errors of sigmoid. The mask is computed from this m;
// m*D - i is rounded once, by a fused multiply-add.
#pragma once

#include "arithmetic.cuh"

namespace vcdeploy {

template <class Real>
struct Mask {
    Real m, sharpness, epsilon;
    int D;

    // e of dimension i, counted from 0. If m is NaN, e is NaN everywhere.
    VCDEPLOY_DEVICE Real operator()(int i) const {
        const Real soft = sigmoid(sharpness * multiply_add(m, Real(D), -Real(i + 1)));
        if (soft > 1 - epsilon) return 1;
        return soft < epsilon ? 0 : soft;
    }

    // An upper bound on a, the active dimensions, rounded up to whole panels: past it e is 0, despite rounding.
    // Between a and the bound e is 0 as well, so that nothing changes there.
    VCDEPLOY_DEVICE int extent(Real reach) const {
        const Real end = m * Real(D) + reach + 2;     // one dimension for ceil, one to spare
        return padded(end < Real(D) ? int(end) : D);  // D also if m is NaN
    }
};

}  // namespace vcdeploy
