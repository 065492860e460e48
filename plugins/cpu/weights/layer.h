// The packed weights of a layer, and its scheduler.
#pragma once

#include <cstddef>
#include <optional>

#include "kernels/scheduler.h"
#include "system/buffer.h"
#include "weights/matrix_view.h"
#include "weights/packing.h"

namespace vcdeploy {

// The weights of a layer as stored in a file. Owned by the caller; needed only while a Layer is constructed.
struct LayerWeights {
    MatrixView U;  // [gates * dim, dim]
    MatrixView V;  // [gates * dim, dim]
    // The scheduler of a variable unit.
    const float* u = nullptr;  // [dim]
    const float* v = nullptr;  // [dim]
    float b = 0;
    const float* bias = nullptr;  // [planes * dim], or null; of a dense unit
};

struct Layer {
    // Throws std::invalid_argument if a weight is NaN, infinite or outside the precision's range.
    Layer(Unit unit, int dim, const LayerWeights& weights, Precision precision);

    std::size_t bytes() const { return U.bytes() + U_reset.bytes() + V.bytes() + bias.bytes(); }

    Unit unit;
    int dim;
    Precision precision;
    std::optional<Scheduler> scheduler;  // of a variable unit
    Buffer<float> bias;                  // [panel][gate][16], then [panel][16] of a product kept apart; may be empty
    HookMatrix U;                        // the gates that read hbar: for VCGRU r and z
    HookMatrix U_reset;                  // VCGRU: the gate h, which reads r ⊙ hbar; GRU: the gate n
    HookMatrix V;                        // all gates
};

}  // namespace vcdeploy
