// The input side of the first layer, tabulated: its x is one of a few dozen embeddings, so V x can be looked up.
//
// For each token the sums V[:, :c] x[:c] are kept for columns c = 0, g, 2g, … and D. A step with a active dimensions
// takes the sums of the c nearest to a and multiplies only the columns in between, and those where the mask is soft:
//
//     0            ones   c    a            D
//     |==============|~~~~|~~~~|             xbar = e ⊙ x:  = x itself,  ~ part of it
//     |===================|                  the table's row
//                    |-~~~|+~~~|             what is left to multiply: (e - 1) ⊙ x, then e ⊙ x
//
// The rows kept at c are those that steps nearest to it reach. The sums are made of the weights as they were given,
// in double, so that the table of f16 or bf16 is more exact than its products. In int8 weights and x are whole levels
// (docs/design.md, section 2), with the table and without it, and the table keeps their sums as such: the levels of xbar and
// of the row then differ by what is left to multiply, and the result has the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "system/buffer.h"
#include "weights/layer.h"

namespace vcdeploy {

class InputTable {
  public:
    // The finest spacing (64 and up) whose table is within `budget` bytes; 0 where none is.
    static int spacing_within(std::size_t budget, Unit unit, int dim, int vocab);

    // V: [gates * dim, dim], of which the layer's was packed. embedding: [vocab, dim]. Both are read only here.
    InputTable(const MatrixView& V, const float* embedding, const Layer& layer, int vocab, int spacing,
               const Kernels& kernels);

    struct Row {
        const float* sums;           // [panel][gate][16], for at least the active rows
        const std::int32_t* counts;  // in int8 these, else null
        int columns;                 // c
    };

    Row nearest(std::int64_t token, int active) const;

    // v·x of the token's embedding.
    double of_scheduler(std::int64_t token) const { return of_scheduler_[token]; }

    // The largest magnitude in the token's embedding.
    float largest(std::int64_t token) const { return largest_[token]; }

    std::size_t bytes() const { return sums_.bytes() + counts_.bytes(); }

  private:
    struct Level {
        int columns;
        int rows;
        std::size_t start;  // within a token's sums
    };

    static std::vector<Level> levels_of(int gates, int dim, int spacing);
    static std::size_t size_of(const std::vector<Level>& levels, int gates);

    int spacing_;
    std::vector<Level> levels_;
    std::size_t size_;  // numbers of one token
    Buffer<float> sums_;
    Buffer<std::int32_t> counts_;  // in int8 instead
    std::vector<double> of_scheduler_;
    std::vector<float> largest_;
};

}  // namespace vcdeploy
