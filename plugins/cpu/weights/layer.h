// The packed weights of a layer, and its scheduler.
#pragma once

#include <cstddef>

#include "kernels/scheduler.h"
#include "weights/matrix_view.h"
#include "weights/packing.h"

namespace vcdeploy {

// The weights of a layer as stored in a file. Owned by the caller; needed only while a Layer is constructed.
struct LayerWeights {
    MatrixView U;    // [gates * dim, dim]
    MatrixView V;    // [gates * dim, dim]
    const float* u;  // [dim]
    const float* v;  // [dim]
    float b;
};

struct Layer {
    // Throws std::invalid_argument if a weight is NaN, infinite or outside the precision's range.
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
