// A layer's weights, packed, with its scheduler.
#pragma once

#include <cstddef>

#include "packing.h"
#include "scheduler.h"
#include "stored.h"

namespace vcdeploy {

// Gates of a unit, stacked by rows in U and V: (h), (r, z, h), (i, f, g, o).
constexpr int gates_of(Unit unit) { return unit == Unit::vcrnn ? 1 : unit == Unit::vcgru ? 3 : 4; }

// Rows of a layer's state: h, or h and c.
constexpr int state_rows_of(Unit unit) { return unit == Unit::vclstm ? 2 : 1; }

// A layer as files store it: owned by the caller and needed only while a Layer is made.
struct LayerWeights {
    StoredMatrix U;  // [gates * dim, dim]
    StoredMatrix V;  // [gates * dim, dim]
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
