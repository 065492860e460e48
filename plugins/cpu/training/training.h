// Training that skips: the forward and the backward pass of a unit over a batch of sequences.
//
// A token is one step of one sequence; its a active dimensions (docs/design.md, section 1) say that it needs the upper
// left a × a corners of the weights and nothing else, forward and backward. Tokens are multiplied together, so that a
// weight that was read serves many, and they differ in a. The whole scheme is:
//
//     sort the tokens by m, the largest first: those that reach past row k are then a prefix of the list
//
//                         columns
//                   0       a3   a2  a1 a0                    weights lie in panels of a few rows;
//                   +-------+----+---+--+                     a panel is multiplied by the prefix of tokens that
//     panel 0       | t0 t1 t2 t3               4 tokens      reach it, six at a time, up to the last column
//     panel 1       | t0 t1 t2 t3               4             that any of the six needs
//     panel 2       | t0 t1 t2                  3
//     panel 3       | t0                        1
//
// Nothing else is skipped or masked: past its a a token's activations are zeros, as far as its neighbours in the list
// reach. `tile.h` is the only product there is, and it serves all:
//
//     forward       gates = U hbar + V xbar             in every step, over the B tokens of the step
//     backward  1   dhbar = Uᵀ d                        in every step, from the last to the first
//                   dxbar = Vᵀ d                        with it, the rows where the mask is neither 0 nor 1
//               2   dxbar = Vᵀ d                        the other rows, over all T·B tokens, a block of the sorted list at a time
//               3   dU = Σ d hbarᵀ, dV = Σ d xbarᵀ      over all tokens: entry (i, k) over the prefix a > max(i, k)
//
// where d is the gradient of the gates' sums. Only 1 has to wait for the step after it. Some of dxbar is part of it
// since dm needs Σ dxbar_i x_i e'_i, where e' = de/dm is 0 unless the mask is between 0 and 1. Beside its outputs the
// forward pass keeps the gates, if it is asked to.
//
// Threads share panels or blocks, and every sum is made by one thread in one order: the same bits with any number.
#pragma once

#include <string>

#include "kernels/scheduler.h"
#include "kernels/table.h"

namespace vcdeploy::training {

// Sizes and weights of a layer. U, V: [G·D, D], gates stacked by rows; u, v: [D].
template <class T>
struct TrainedLayer {
    Unit unit;
    int steps, batch, dim;  // T, B, D, all above 0
    Softness softness;
    const T *U, *V, *u, *v;
    T b;
};

// W: D, rounded up to whole panels of any instruction set.
constexpr int kPadding = 32;

template <class T>
struct Forward {
    const T* X;   // [T, B, D]
    const T* H0;  // [B, D]
    T* C;         // [B, D], VCLSTM: c before the first step, and at the end after the last
    T* Y;         // [T, B, D], made
    T* M;         // [T, B], made
    // [T·B·G·W], for the backward pass; null: not kept. Steps lie one after the other. A step is [G][plane], a plane the
    // active dimensions of its B tokens, each rounded up as W is: what is not active takes no room, and where much is
    // not, the end is never touched.
    T* gates;
};

template <class T>
struct Backward {
    const T *X, *H0, *C0, *Y, *M, *gates;  // as above; C0 before the first step, null where there is no cell
    const T *dY, *dM;
    T* dH;       // [B, D]: of the state after the last step, and at the end before the first
    T* dC;       // the same of the cell
    T* dX;       // [T, B, D], made
    T *dU, *dV;  // [G·D, D], made
    T *du, *dv;  // [D], made
    T* dS;       // [T, B], made: of u·h + v·x + b
};

// A sequence whose m is NaN is NaN from that step on. isa: a name, or "auto".
template <class T>
void run_forward(const TrainedLayer<T>& layer, const Forward<T>& call, int threads, const std::string& isa);

// For values that are all finite.
template <class T>
void run_backward(const TrainedLayer<T>& layer, const Backward<T>& call, int threads, const std::string& isa);

}  // namespace vcdeploy::training
