// The scheduler: m, the mask e, and how far it reaches (docs/design.md, section 1), in Real throughout.
//
// The logit is a DoubledSum, so that m is off by the roundings of sigmoid alone. The mask is made of the m that is put
// out: m*D - i has one rounding, since a fused multiply-add makes it.
#pragma once

#include "arithmetic.cuh"

namespace vcdeploy {

template <class Real>
struct Mask {
    Real m, sharpness, epsilon;
    int D;

    // e of dimension i, counted from 0. A NaN m makes all of it NaN.
    VCDEPLOY_DEVICE Real operator()(int i) const {
        const Real soft = sigmoid(sharpness * multiply_add(m, Real(D), -Real(i + 1)));
        if (soft > 1 - epsilon) return 1;
        return soft < epsilon ? 0 : soft;
    }

    // A bound on a, the active dimensions, rounded up to whole vectors: past it e is 0, whatever was rounded. Between a
    // and it e is 0 too, so that nothing changes there either.
    VCDEPLOY_DEVICE int extent(Real reach, int vector) const {
        const Real end = m * Real(D) + reach + 2;  // one dimension for ceil, one to spare
        if (!(end < Real(D))) return D;            // and so for a NaN
        const int up = (int(end) + vector - 1) / vector * vector;
        return up < D ? up : D;
    }
};

}  // namespace vcdeploy
