// A layer's weights, packed, with its scheduler.
#pragma once

#include <cstddef>

#include "kernels/scheduler.h"
#include "weights/matrix_view.h"
#include "weights/packing.h"

namespace vcdeploy {

// A layer as files store it: owned by the caller and needed only while a Layer is made.
struct LayerWeights {
    MatrixView U;    // [gates * dim, dim]
    MatrixView V;    // [gates * dim, dim]
    const float* u;  // [dim]
    const float* v;  // [dim]
    float b;
};

struct Layer {
    // Throws std::invalid_argument where a weight is NaN, infinite or beyond the precision's range.
    Layer(Unit unit, int dim, const LayerWeights& weights, Precision precision);

    std::size_t bytes() const { return U.bytes() + U_reset.bytes() + V.bytes(); }

    Unit unit;
    int dim;
    Precision precision;
    Scheduler scheduler;
    HookMatrix U;        // the gates that read hbar: for VCGRU r and z
    HookMatrix U_reset;  // VCGRU: the gate h, which reads r ⊙ hbar
    HookMatrix V;        // all gates
};

}  // namespace vcdeploy
