// The gradients of U and V: dW[i][k] = Σ d_i in_k over the tokens with more than max(i, k) active dimensions.
//
// The sum runs over the sorted list in stretches that stay in the cache. In one, d is laid out six rows at a time and
// the inputs a panel of columns at a time; both then are what add_outer() reads from the front to the end, and the
// tokens that count for a tile are the front of it.
#pragma once

#include <algorithm>
#include <vector>

#include "buffer.h"
#include "training/sharing.h"
#include "training/table.h"

namespace vcdeploy::training {

// What a stretch is made of. T: the scalar; in(n) and d(n): rows of token n of the sorted list.
template <class T>
class WeightGradients {
  public:
    // counts[k]: tokens with more than k active dimensions, k from 0 to D.
    WeightGradients(const Table<T>& table, int gates, int dim, const std::vector<int>& counts, Team& team)
        : table_(table), gates_(gates), dim_(dim), counts_(counts), team_(team), groups_((dim + kGroup - 1) / kGroup),
          d_(static_cast<std::size_t>(gates) * groups_ * kGroup * kStretch, Contents::any) {
        for (int i = 0; i < team.size(); ++i)
            inputs_.emplace_back(static_cast<std::size_t>(kColumns) * table.panel * kStretch, Contents::any);
    }

    // An input of some of the gates: its row of token n up to where it is active; the gradient [G·D, D].
    struct Source {
        int first_gate, last_gate;
        T* gradient;
    };

    // active(n); d(n, gate) -> const T*; input(n, source, begin, end, T* out): columns [begin, end) of what the source's
    // gates read, all for n below count.
    template <class Active, class D, class Input>
    void run(int count, const std::vector<Source>& sources, const Active& active, const D& d, const Input& input) {
        for (int begin = 0; begin < count; begin += kStretch) {
            const int size = std::min(kStretch, count - begin), widest = active(begin);
            if (widest == 0) break;
            const std::int64_t products = static_cast<std::int64_t>(widest) * widest * size;
            const int pieces = (size + kPiece - 1) / kPiece;
            share_out(team_, pieces, std::int64_t{4} * gates_ * widest * size, [&](int piece, int) {
                for (int n = piece * kPiece; n < std::min(size, (piece + 1) * kPiece); ++n)
                    for (int gate = 0; gate < gates_; ++gate) lay_out(gate, n, d(begin + n, gate), active(begin + n));
            });
            const int columns = kColumns * table_.panel, chunks = (widest + columns - 1) / columns;
            const int jobs = chunks * static_cast<int>(sources.size());
            share_out(team_, jobs, products, [&](int job, int member) {
                const int source = job % static_cast<int>(sources.size()), chunk = job / static_cast<int>(sources.size());
                multiply(begin, size, chunk * columns, std::min(widest, (chunk + 1) * columns), sources[source],
                         inputs_[member].data(), active,
                         [&](int n, int from, int to, T* out) { input(n, source, from, to, out); });
            });
        }
    }

  private:
    static constexpr int kStretch = 512;  // tokens
    static constexpr int kPiece = 64;
    static constexpr int kColumns = 4;  // panels of inputs at a time: 128 KB of floats with AVX2

    T* laid_out(int gate, int group) {
        return d_.data() + (static_cast<std::size_t>(gate) * groups_ + group) * kStretch * kGroup;
    }

    void lay_out(int gate, int n, const T* d, int active) {
        for (int row = 0, group = 0; row < active; row += kGroup, ++group) {
            T* out = laid_out(gate, group) + n * kGroup;
            if (active - row >= kGroup) {
                std::copy_n(d + row, kGroup, out);
            } else {
                std::fill(std::copy(d + row, d + active, out), out + kGroup, T(0));
            }
        }
    }

    // Tokens of a stretch that have more than `dimension` active.
    int reaching(int begin, int size, int dimension) const { return std::clamp(counts_[dimension] - begin, 0, size); }

    template <class Active, class Input>
    void multiply(int begin, int size, int first, int last, const Source& source, T* inputs, const Active& active,
                  const Input& input) {
        const int P = table_.panel;
        for (int column = first; column < last; column += P) {
            T* out = inputs + static_cast<std::size_t>(column - first) * kStretch;
            const int count = reaching(begin, size, column);
            for (int n = 0; n < count; ++n, out += P) {
                const int end = std::min(column + P, active(begin + n));
                input(begin + n, column, end, out);
                std::fill(out + (end - column), out + P, T(0));
            }
        }
        for (int gate = source.first_gate; gate < source.last_gate; ++gate)
            for (int row = 0, group = 0; row < dim_; row += kGroup, ++group) {
                if (reaching(begin, size, std::max(row, first)) == 0) break;
                const int rows = std::min(kGroup, dim_ - row);
                T* out = source.gradient + (static_cast<std::size_t>(gate) * dim_ + row) * dim_;
                for (int column = first; column < last; column += P)
                    if (const int count = reaching(begin, size, std::max(row, column)); count > 0)
                        table_.add_outer(laid_out(gate, group), inputs + static_cast<std::size_t>(column - first) * kStretch,
                                         count, out + column, dim_, rows, std::min(P, dim_ - column));
            }
    }

    const Table<T>& table_;
    int gates_, dim_;
    const std::vector<int>& counts_;
    Team& team_;
    int groups_;
    Buffer<T> d_;                     // [gate][group of rows][token][kGroup]
    std::vector<Buffer<T>> inputs_;  // by thread: [panel of columns][token][panel]
};

}  // namespace vcdeploy::training
