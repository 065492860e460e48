// The gradients of U and V: dW[i][k] = Σ d_i in_k over the tokens with more than max(i, k) active dimensions.
//
// The sum runs over the sorted list in chunks that stay in the cache. Within a chunk, d is laid out in groups of six
// rows and the inputs in panels of columns, so that multiply_outer() reads both sequentially and the tokens a tile
// needs come first.
#pragma once

#include <algorithm>
#include <vector>

#include "training/kernel_table.h"
#include "training/scratch.h"
#include "training/work.h"

namespace vcdeploy::training {

template <class T>
class WeightGradients {
  public:
    // An input of some of the gates, and the gradient [G·D, D] of their weights.
    struct Source {
        int first_gate, last_gate;
        T* gradient;
    };
    // The input of a source for one token: e ⊙ x, or e ⊙ x ⊙ r if r is not null.
    struct Input {
        const T *e, *x, *r;
    };

    // counts[k]: tokens with more than k active dimensions, k from 0 to D. The sources cover all gates of each
    // gradient.
    WeightGradients(const Table<T>& table, int gates, int dim, const std::vector<int>& counts,
                    const std::vector<Source>& sources, Team& team)
        : table_(table), gates_(gates), dim_(dim), counts_(counts), sources_(sources), team_(team),
          groups_((dim + kGroup - 1) / kGroup), panels_((dim + table.panel - 1) / table.panel),
          of_group_(kStretch * kGroup + kApart), of_panel_(static_cast<std::size_t>(kStretch) * table.panel + kApart),
          d_(gates * groups_ * of_group_), inputs_(sources.size() * panels_ * of_panel_) {}

    // For n below count: active(n); d(n, gate) -> const T*; input(n, source) -> Input.
    template <class Active, class D, class InputOf>
    void run(int count, const Active& active, const D& d, const InputOf& input) {
        clear_past(counts_[0] > 0 ? active(0) : 0);
        for (int begin = 0; begin < counts_[0]; begin += kStretch) {
            const int size = std::min(kStretch, count - begin), widest = active(begin);
            const int sources = static_cast<int>(sources_.size()), rows = gates_ + sources;
            const int pieces = (size + kPiece - 1) / kPiece;
            distribute(team_, rows * pieces, std::int64_t{4} * rows * widest * size, [&](int number, int) {
                const int first = number / rows * kPiece, last = std::min(size, first + kPiece), row = number % rows;
                for (int n = first; n < last; ++n) {
                    if (row < gates_) {
                        lay_out(row, n, d(begin + n, row), active(begin + n));
                    } else {
                        const Input in = input(begin + n, row - gates_);
                        table_.mask_panels(in.e, in.x, in.r, active(begin + n),
                                           panel(row - gates_, 0) + n * table_.panel,
                                           static_cast<std::ptrdiff_t>(of_panel_));
                    }
                }
            });
            // All gates in turn with the same inputs, which then stay in the cache.
            const int columns = kPanels * table_.panel, chunks = (widest + columns - 1) / columns;
            const std::int64_t products = std::int64_t{2} * gates_ * widest * widest * size;
            std::vector<Job> jobs;
            for (int chunk = 0; chunk < chunks; ++chunk)
                for (int source = 0; source < sources; ++source)
                    for (int gate = sources_[source].first_gate; gate < sources_[source].last_gate; ++gate)
                        jobs.push_back({source, gate, chunk * columns, std::min(widest, (chunk + 1) * columns)});
            distribute(team_, static_cast<int>(jobs.size()), products,
                       [&](int number, int) { multiply(begin, size, jobs[number]); });
        }
    }

  private:
    static constexpr int kStretch = 512;  // tokens
    static constexpr int kPiece = 64;
    static constexpr int kPanels = 8;  // panels of inputs per job: 256 KB of floats with AVX2
    // Padding between neighbours: a power of two bytes apart, they would compete for a few cache sets.
    static constexpr int kApart = 64 / static_cast<int>(sizeof(T));

    struct Job {
        int source, gate, first, last;  // columns
    };

    T* group(int gate, int number) {
        return d_.data() + (static_cast<std::size_t>(gate) * groups_ + number) * of_group_;
    }
    T* panel(int source, int number) {
        return inputs_.data() + (static_cast<std::size_t>(source) * panels_ + number) * of_panel_;
    }

    void lay_out(int gate, int n, const T* d, int active) {
        T* out = group(gate, 0) + n * kGroup;
        int row = 0;
        for (; row + kGroup <= active; row += kGroup, out += of_group_) std::copy_n(d + row, kGroup, out);
        if (row < active) std::fill(std::copy(d + row, d + active, out), out + kGroup, T(0));
    }

    // Writes zeros past the first (largest) token's reach; the first chunk sets the rest.
    void clear_past(int widest) {
        const int rows = std::min(dim_, (widest + kGroup - 1) / kGroup * kGroup);
        const int columns = std::min(dim_, (widest + table_.panel - 1) / table_.panel * table_.panel);
        for (const Source& source : sources_)
            distribute(team_, source.last_gate - source.first_gate, std::int64_t{dim_} * dim_, [&](int number, int) {
                T* out = source.gradient + static_cast<std::size_t>(source.first_gate + number) * dim_ * dim_;
                for (int row = 0; row < dim_; ++row, out += dim_)
                    std::fill(out + (row < rows ? columns : 0), out + dim_, T(0));
            });
    }

    // Tokens of a chunk with more than `dimension` active dimensions.
    int reaching(int begin, int size, int dimension) const { return std::clamp(counts_[dimension] - begin, 0, size); }

    void multiply(int begin, int size, const Job& job) {
        const int P = table_.panel;
        const std::ptrdiff_t pace = (kGroup + kPanels - 1) / kPanels;
        T* out = sources_[job.source].gradient + static_cast<std::size_t>(job.gate) * dim_ * dim_;
        for (int row = 0; row < dim_; row += kGroup, out += static_cast<std::ptrdiff_t>(kGroup) * dim_) {
            if (reaching(begin, size, std::max(row, job.first)) == 0) break;
            const T *d = group(job.gate, row / kGroup), *soon = d + of_group_;  // the next six rows
            for (int column = job.first; column < job.last; column += P) {
                const int count = reaching(begin, size, std::max(row, column));
                if (count == 0) break;
                table_.multiply_outer(d, panel(job.source, column / P), count, out + column, dim_,
                                      std::min(kGroup, dim_ - row), std::min(P, dim_ - column), begin > 0, soon, pace);
                soon += count * pace;
            }
        }
    }

    const Table<T>& table_;
    int gates_, dim_;
    const std::vector<int>& counts_;
    const std::vector<Source>& sources_;
    Team& team_;
    int groups_, panels_;
    std::size_t of_group_, of_panel_;  // elements
    Scratch<T> d_;                     // [gate][group of rows][token][kGroup]
    Scratch<T> inputs_;                // [source][panel of columns][token][panel]
};

}  // namespace vcdeploy::training
