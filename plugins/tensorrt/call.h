// The arguments of a kernel for one call of an op: docs/design.md, section 2. Host and device.
#pragma once

#include <cstddef>

namespace vcdeploy {

// Types. Weight: U and V. Activation: all other tensors. Real: sums, the scheduler and the state within the call.
template <class Weight, class Activation, class Real>
struct Call {
    const Activation *X, *H0;     // [T, B, D], [B, D]
    const Weight *U, *V;          // [gates * D, D]
    const Activation *u, *v, *b;  // [D], [D], [1]
    const Activation* C0;         // [B, D], VCLSTM only
    Activation *Y, *H, *M, *C;    // [T, B, D], [B, D], [T, B]; [B, D], VCLSTM only
    int T, B, D;                  // above 0
    Real sharpness, epsilon;
    Real reach;       // dimensions past m*D up to which the mask is above 0: ln((1 - epsilon) / epsilon) / sharpness
    int vector;       // columns per read: 16 bytes of a row of weights, or 1 if rows are not aligned to 16 bytes
    int members;      // blocks that share a sequence
    int alone;        // grid: if at most this many dimensions are active, one block runs alone; 0 for B > 1
    int on_chip;      // grid: a block's vectors are in shared memory, otherwise in the workspace
    Real* workspace;  // grid: grid_workspace_numbers(), uninitialised
};

// Length of a vector of D numbers in memory: keeps vectors aligned to 16 bytes, and readable 8 numbers at a time.
constexpr int padded(int D) { return (D + 7) / 8 * 8; }

}  // namespace vcdeploy
