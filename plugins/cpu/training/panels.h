// Weights packed into panels for tile.h. Only the corner that tokens have reached so far is packed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "training/scratch.h"
#include "training/work.h"

namespace vcdeploy::training {

enum class Side { plain, transposed };

// A matrix [G·D, D]. Panel p of gate k holds its rows [p·P, p·P + P) (or columns, if transposed), one column (row)
// after the other: [column][P]. Rows past D are zeros.
template <class T>
class Panels {
  public:
    Panels(const T* weights, int gates, int dim, int panel, Side side)
        : weights_(weights), gates_(gates), dim_(dim), panel_(panel), count_((dim + panel - 1) / panel), side_(side),
          packed_(count_, 0), memory_(static_cast<std::size_t>(gates) * count_ * dim * panel) {}

    const T* panel(int gate, int number) const { return memory_.data() + start(gate, number); }
    // The panel multiplied next if gates [first, last) of every panel are multiplied in turn.
    const T* after(int gate, int number, int first, int last) const {
        return gate + 1 < last ? panel(gate + 1, number) : panel(first, std::min(number + 1, count_ - 1));
    }

    // Packs the corner of the first `reach` rows and columns.
    void extend(int reach, Team& team) {
        if (reach <= reach_) return;
        reach_ = std::min(dim_, (reach + kStride - 1) / kStride * kStride);
        const int wanted = (reach_ + panel_ - 1) / panel_;
        const std::int64_t moved = static_cast<std::int64_t>(gates_) * wanted * panel_ * reach_;
        distribute(team, wanted, moved, [&](int number, int) {
            for (int gate = 0; gate < gates_; ++gate) pack(gate, number, packed_[number], reach_);
            packed_[number] = reach_;
        });
    }

  private:
    static constexpr int kStride = 64;  // minimum growth of the corner

    std::size_t start(int gate, int number) const {
        return (static_cast<std::size_t>(gate) * count_ + number) * dim_ * panel_;
    }

    void pack(int gate, int number, int begin, int end) {
        const int row = number * panel_, rows = std::min(panel_, dim_ - row);
        T* out = memory_.data() + start(gate, number);
        const T* corner = weights_ + static_cast<std::size_t>(gate) * dim_ * dim_;
        if (rows < panel_) std::fill(out + begin * panel_, out + end * panel_, T(0));
        if (side_ == Side::transposed) {
            for (int k = begin; k < end; ++k)
                std::copy_n(corner + static_cast<std::size_t>(k) * dim_ + row, rows, out + k * panel_);
            return;
        }
        for (int k = begin; k < end; k += kStride)  // a block of columns at a time, so that writes stay in the cache
            for (int i = 0; i < rows; ++i) {
                const T* from = corner + static_cast<std::size_t>(row + i) * dim_;
                for (int c = k; c < std::min(k + kStride, end); ++c) out[c * panel_ + i] = from[c];
            }
    }

    const T* weights_;
    int gates_, dim_, panel_, count_;
    Side side_;
    int reach_ = 0;
    std::vector<int> packed_;  // columns packed so far, per panel
    Scratch<T> memory_;
};

}  // namespace vcdeploy::training
