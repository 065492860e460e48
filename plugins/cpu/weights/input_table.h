// The table of the first layer's input products: its x is one of a few dozen embeddings, so V x can be looked up.
//
// For each token the table stores the sums V[:, :c] x[:c] for columns c = 0, g, 2g, … and D. A step multiplies only the soft
// columns, and those between them and c if no c lies within:
//
//     0            ones   c    a            D
//     |==============|~~~~|~~~~|             xbar = e ⊙ x:  = x itself,  ~ part of it
//     |===================|                  the table row
//                    |-~~~|+~~~|             what is left to multiply: (e - 1) ⊙ x, then e ⊙ x
//
// For each c only the rows that its steps can reach are stored; for a dense unit, only c = D. The sums use the weights as
// given, in double, so for f16 and bf16 the table is more exact than the products. In int8 and w8a8, weights and x are
// quantized with or without the table (docs/design.md, section 2), and it stores integer sums: the levels of xbar and of
// the row differ exactly by what is left to multiply, so the result has the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "system/buffer.h"
#include "weights/layer.h"

namespace vcdeploy {

class InputTable {
  public:
    // The finest spacing whose table fits kFine bytes, else that fits `budget`; 0 if none does.
    static constexpr std::size_t kFine = 16 << 20;
    static int spacing_within(std::size_t budget, Unit unit, int dim, int vocab);

    // V: [gates * dim, dim], the matrix that was packed into `layer`. embedding: [vocab, dim]. Both are needed only
    // here.
    InputTable(const MatrixView& V, const float* embedding, const Layer& layer, int vocab, int spacing,
               const Kernels& kernels);

    struct Row {
        const float* sums;           // [panel][gate][16], for at least the active rows
        const std::int32_t* counts;  // if quantized, else null
        int columns;                 // c
    };

    // The row that leaves the fewest columns to multiply.
    Row nearest(std::int64_t token, const Extent& extent) const;

    // v·x of the token's embedding.
    double of_scheduler(std::int64_t token) const { return of_scheduler_[token]; }

    // The largest magnitude in the token's embedding.
    float largest(std::int64_t token) const { return largest_[token]; }

    std::size_t bytes() const { return sums_.bytes() + counts_.bytes(); }

  private:
    struct Level {
        int columns;
        int rows;
        std::size_t start;  // offset within a token's sums
    };

    static std::vector<Level> levels_of(const UnitSpec& spec, int dim, int spacing);
    static std::size_t size_of(const std::vector<Level>& levels, int gates);

    int spacing_;
    std::vector<Level> levels_;
    std::size_t size_;  // numbers per token
    Buffer<float> sums_;
    Buffer<std::int32_t> counts_;  // used instead if quantized
    std::vector<double> of_scheduler_;
    std::vector<float> largest_;
};

}  // namespace vcdeploy
