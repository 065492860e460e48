// A whole op call: every sequence of a batch through one layer, step by step (docs/design.md, section 2).
#pragma once

#include "engine/step.h"
#include "weights/layer.h"

namespace vcdeploy {

// The arrays of a call: row-major, float, owned by the caller. Outputs must not overlap inputs.
struct SequenceCall {
    int T, B;
    const float* X;   // [T, B, D]
    const float* H0;  // [B, D]
    const float* C0;  // [B, D], VCLSTM
    const float* m;   // [T, B], the m to use instead of the scheduler's, or null
    float* Y;         // [T, B, D]
    float* H;         // [B, D]
    float* M;         // [T, B]
    float* C;         // [B, D], VCLSTM
};

void run_sequences(const Layer& layer, Stepper& stepper, const SequenceCall& call);

}  // namespace vcdeploy
