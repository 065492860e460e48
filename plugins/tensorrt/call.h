// One call of an op, as the kernels take it: docs/design.md, section 2. Host and device.
#pragma once

#include <cstddef>

namespace vcdeploy {

// Weight: of U and V. Activation: of all other tensors. Real: sums, the scheduler and the state within the call.
template <class Weight, class Activation, class Real>
struct Call {
    const Activation *X, *H0;     // [T, B, D], [B, D]
    const Weight *U, *V;          // [gates * D, D]
    const Activation *u, *v, *b;  // [D], [D], [1]
    const Activation* C0;         // [B, D], VCLSTM only
    Activation *Y, *H, *M, *C;    // [T, B, D], [B, D], [T, B]; [B, D], VCLSTM only
    int T, B, D;                  // above 0
    Real sharpness, epsilon;
    Real reach;   // dimensions past m*D up to which the mask is above 0: ln((1 - epsilon) / epsilon) / sharpness
    int vector;   // columns read at once: 16 bytes of a row of weights, or 1 where rows don't begin at multiples of 16
    int members;  // blocks that share a sequence
    int alone;    // grid: with at most so many dimensions (of D) active, one block goes on by itself; 0 for B > 1
    int on_chip;  // grid: the vectors of a block are in shared memory; else in the workspace
    Real* workspace;  // grid: grid_workspace_numbers, not initialised
};

// Vectors of D lie at multiples of 16 bytes, and may be read 8 numbers at a time.
constexpr int padded(int D) { return (D + 7) / 8 * 8; }

}  // namespace vcdeploy
