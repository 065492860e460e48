// Batches of tokens to multiply together, sorted by m.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "training/kernel_table.h"
#include "training/training.h"
#include "weights/layer.h"
#include "weights/layout.h"

namespace vcdeploy::training {

// Elements per row of working memory: a whole number of panels plus one cache line. Rows a power of two bytes apart
// would compete for the same few L1 cache sets.
template <class T>
int row_width(int dim) {
    return rounded_up(dim, kPadding) + 64 / static_cast<int>(sizeof(T));
}

// Tokens to multiply together, by descending m.
template <class T>
struct Batch {
    std::vector<Rows<T>> rows;
    std::vector<Extent> extents;

    void clear() {
        rows.clear();
        extents.clear();
    }
    void add(const Rows<T>& token, Extent extent) {
        rows.push_back(token);
        extents.push_back(extent);
    }
    int size() const { return static_cast<int>(rows.size()); }
    int widest() const { return extents.empty() ? 0 : extents.front().active; }
    int panels(int panel) const { return (widest() + panel - 1) / panel; }

    // Columns up to which token i must be zero-padded: the most of any token in the same tile.
    int wide(int i) const { return extents[std::max(0, i - (kGroup - 1))].active; }

    // Tokens with more than `row` active rows.
    int reaching(int row) const {
        const auto reaches = [row](const Extent& extent) { return extent.active > row; };
        return static_cast<int>(std::partition_point(extents.begin(), extents.end(), reaches) - extents.begin());
    }

    // Tokens whose mask is 1 in all rows before `row`; also a prefix of the list.
    int plain_before(int row) const {
        const auto plain = [row](const Extent& extent) { return extent.ones >= row; };
        return static_cast<int>(std::partition_point(extents.begin(), extents.end(), plain) - extents.begin());
    }

    // Multiply-adds of one gate for all tokens.
    std::int64_t products() const {
        std::int64_t sum = 0;
        for (const Extent& each : extents) sum += static_cast<std::int64_t>(each.active) * each.active;
        return sum;
    }
};

// The indices 0 … count - 1 by descending m, NaN last; the sort is stable. m: null if all are active.
template <class T>
std::vector<int> sorted_by_m(const T* m, int count) {
    std::vector<int> order(count);
    for (int i = 0; i < count; ++i) order[i] = i;
    if (!m) return order;
    const auto key = [m](int i) { return m[i] == m[i] ? m[i] : T(-1); };
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return key(i) > key(j); });
    return order;
}

// The number of threads for a call: 1 if the work does not justify starting more.
template <class T>
int worthwhile(const TrainedLayer<T>& layer, int threads) {
    constexpr double kWorthStarting = 8e6;  // multiply-adds, counted densely
    const double dense = 2.0 * gates_of(layer.unit) * layer.dim * layer.dim * layer.steps * layer.batch;
    return dense < kWorthStarting ? 1 : threads;
}

}  // namespace vcdeploy::training
