// Training that skips: the forward and the backward pass of a unit over a batch of sequences.
//
// A token is one step of one sequence. With a active dimensions (docs/design.md, section 1) it needs only the
// upper-left a × a corners of the weights, forward and backward. Tokens are multiplied in batches, so that each weight
// read serves many, but they differ in a. The scheme:
//
//     sort the tokens by descending m: those that reach past row k are then a prefix of the list
//
//                         columns
//                   0       a3   a2  a1 a0                    weights lie in panels of a few rows;
//                   +-------+----+---+--+                     a panel is multiplied by the prefix of tokens that
//     panel 0       | t0 t1 t2 t3               4 tokens      reach it, six at a time, up to the last column
//     panel 1       | t0 t1 t2 t3               4             that any of the six needs
//     panel 2       | t0 t1 t2                  3
//     panel 3       | t0                        1
//
// Nothing else is skipped or masked: past its own a, a token's activations are zero as far as its neighbours in the
// list reach. One product (`tile.h`) serves all passes:
//
//     forward       gates = U hbar + V xbar             per step, over its B tokens
//     backward  1   dhbar = Uᵀ d                        per step, from the last to the first
//                   dxbar = Vᵀ d                        likewise, in the rows where the mask is neither 0 nor 1
//               2   dxbar = Vᵀ d                        the other rows, over all T·B tokens, in sorted blocks
//               3   dU = Σ d hbarᵀ, dV = Σ d xbarᵀ      over all tokens: entry (i, k) over the prefix a > max(i, k)
//
// where d is the gradient of the gates' pre-activations. Only part 1 depends on the following step. It includes some
// rows of dxbar because dm needs Σ dxbar_i x_i e'_i, where e' = de/dm is 0 unless the mask is between 0 and 1. On
// request the forward pass also saves the gates.
//
// In a dense unit every token has all D dimensions active and a mask of ones; nothing else differs.
//
// Threads split panels or blocks, and each sum is computed by one thread in a fixed order, so that the result does not
// depend on the number of threads.
#pragma once

#include <string>

#include "kernels/scheduler.h"
#include "kernels/table.h"

namespace vcdeploy::training {

// Sizes and weights of a layer. U, V: [G·D, D], gates stacked by rows; u, v: [D]. A dense unit has no softness, u, v, b.
template <class T>
struct TrainedLayer {
    Unit unit;
    int steps, batch, dim;  // T, B, D, all above 0
    Softness softness;
    const T *U, *V, *u, *v;
    T b;
};

// W is D rounded up to a multiple of this: whole panels on any instruction set.
constexpr int kPadding = 32;

template <class T>
struct Forward {
    const T* X;   // [T, B, D]
    const T* H0;  // [B, D]
    T* C;         // [B, D], VCLSTM: the cell before the first step on entry, after the last on return
    T* Y;         // [T, B, D], output
    T* M;         // [T, B], output; null for a dense unit, like everything else about m below
    // [T·B·G·W], saved for the backward pass, or null. Steps follow each other. A step is [G][plane]; a plane holds
    // only the active dimensions of its B tokens, each rounded up like W, so that the end of the array may stay
    // untouched.
    T* gates;
};

template <class T>
struct Backward {
    const T *X, *H0, *C0, *Y, *M, *gates;  // as above; C0: the cell before the first step, or null
    const T *dY, *dM;
    T* dH;       // [B, D]: gradient of the state after the last step on entry, before the first on return
    T* dC;       // the same for the cell
    T* dX;       // [T, B, D], output
    T *dU, *dV;  // [G·D, D], output
    T *du, *dv;  // [D], output
    T* dS;       // [T, B], output: gradient of u·h + v·x + b
};

// A sequence whose m is NaN is NaN from that step on. isa: a name, or "auto".
template <class T>
void run_forward(const TrainedLayer<T>& layer, const Forward<T>& call, int threads, const std::string& isa);

// All values must be finite.
template <class T>
void run_backward(const TrainedLayer<T>& layer, const Backward<T>& call, int threads, const std::string& isa);

}  // namespace vcdeploy::training
