// Results over a vector of which a step changes only the first elements, kept from one step to the next.
//
// They are kept in blocks of columns, from each block to the last one: past what changed they still hold, bit for bit, so
// that results do not depend on what was computed before, and nothing drifts.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/table.h"
#include "system/buffer.h"

namespace vcdeploy {

// How many leading elements of a vector have changed since it was last read; at first all.
class Stale {
  public:
    explicit Stale(int elements) : elements_(elements) {}

    void add(int changed) { elements_ = std::max(elements_, changed); }
    int take() { return std::exchange(elements_, 0); }

  private:
    int elements_;
};

// A product with a fixed vector, as kernels.dot.
class KeptDot {
  public:
    explicit KeptDot(int dim) : dim_(dim), stale_(dim), sums_((kept_blocks(dim) + 1) * 16) {}

    void change(int elements) { stale_.add(elements); }
    double of(const float* weights, const float* values, const Kernels& kernels) {
        return kernels.dot(weights, values, dim_, stale_.take(), sums_.data());
    }

  private:
    int dim_;
    Stale stale_;
    Buffer<double> sums_;  // [blocks + 1][16], the last ones zero
};

// The largest magnitude.
class KeptLargest {
  public:
    explicit KeptLargest(int dim) : dim_(dim), stale_(dim), blocks_(kept_blocks(dim)) {}

    void change(int elements) { stale_.add(elements); }

    // Not finite if a value is not.
    float of(const float* values, const Kernels& kernels) {
        const int changed = kept_blocks(stale_.take());
        float most = 0;
        for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
            const int begin = block * kKeptBlock;
            if (block < changed) blocks_[block] = kernels.largest(values + begin, std::min(kKeptBlock, dim_ - begin));
            if (std::isnan(blocks_[block]) || blocks_[block] > most) most = blocks_[block];  // NaN stays
        }
        return most;
    }

  private:
    int dim_;
    Stale stale_;
    Buffer<float> blocks_;
};

}  // namespace vcdeploy
