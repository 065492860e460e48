// The arguments of a kernel for one call of an op: docs/design.md, section 2. Host and device.
#pragma once

#include <cstddef>

namespace vcdeploy {

// Types. Weight: U and V. Activation: all other tensors. Real: sums, the scheduler and the state within the call.
template <class Weight, class Activation, class Real>
struct Call {
    const Activation *X, *H0;     // [T, B, D], [B, D]
    const Weight *U, *V;          // packed: packed_place
    const Activation *u, *v, *b;  // [D], [D], [1]
    const Activation* C0;         // [B, D], VCLSTM only
    Activation *Y, *H, *M, *C;    // [T, B, D], [B, D], [T, B]; [B, D], VCLSTM only
    int T, B, D;                  // above 0
    Real sharpness, epsilon;
    Real reach;       // dimensions past m*D up to which the mask is above 0: ln((1 - epsilon) / epsilon) / sharpness
    int slices;       // slices_of(D)
    int tile;         // most chunks of rows between two reductions
    int members;      // blocks that share a sequence
    int alone;        // grid: if at most this many dimensions are active, one block runs alone; 0 for B > 1
    int on_chip;      // grid: a block's vectors are in shared memory, otherwise in the workspace
    Real* workspace;  // grid: grid_workspace_numbers(), uninitialised
};

constexpr int kPanel = 8;  // rows of weights stored together; vectors and prefixes are multiples of it

// Length of a vector of D numbers in memory: keeps vectors aligned to 16 bytes, and readable 8 numbers at a time.
constexpr int padded(int D) { return (D + kPanel - 1) / kPanel * kPanel; }

// Columns of a row that are stored together: 16 bytes.
template <class Weight>
constexpr int columns_of = 16 / sizeof(Weight);

// Packed weights: [padded(D) / columns][padded(D) / kPanel][gates][kPanel][columns], zero past D. A prefix of the rows
// of a column block is contiguous. Returns the place of gate 0, row `row`, first column of a block; gates follow each
// other at a distance of kPanel * columns.
template <class Weight>
constexpr std::size_t packed_place(int D, int gates, int column_block, int row) {
    constexpr int columns = columns_of<Weight>;
    const int panels = padded(D) / kPanel;
    return (std::size_t(column_block) * panels + row / kPanel) * gates * kPanel * columns + row % kPanel * columns;
}

// Number of slices the columns are split into: column block c belongs to slice c mod slices. It depends only on D, so
// that a row is summed in the same order on every path. More slices for larger D, where more warps share a row.
constexpr int slices_of(int D) { return D <= 256 ? 8 : D <= 512 ? 16 : D <= 1024 ? 32 : 64; }

}  // namespace vcdeploy
