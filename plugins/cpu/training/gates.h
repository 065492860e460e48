// The gates of a list of tokens, panel by panel: what the forward pass does in a step, and the backward pass again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layer.h"
#include "layout.h"
#include "training/panels.h"
#include "training/table.h"
#include "training/training.h"

namespace vcdeploy::training {

// Tokens that are multiplied together, sorted by m, the largest first.
template <class T>
struct Batch {
    std::vector<Rows<T>> rows;
    std::vector<Extent> extents;
    std::vector<Operand<T>> hbar, xbar, reset;  // times U, V, and VCGRU's second part of U, into the gates

    void clear() {
        rows.clear();
        extents.clear();
        hbar.clear();
        xbar.clear();
        reset.clear();
    }
    void add(const Rows<T>& token, Extent extent, const T* x) {
        rows.push_back(token);
        extents.push_back(extent);
        hbar.push_back({token.hbar, token.gates, 0, extent.active});
        xbar.push_back({x, token.gates, 0, extent.active});
        reset.push_back({token.reset, token.gates, 0, extent.active});
    }
    int size() const { return static_cast<int>(rows.size()); }
    int widest() const { return extents.empty() ? 0 : extents.front().active; }
    int panels(int panel) const { return (widest() + panel - 1) / panel; }

    // How far zeros must reach past token i's own columns: as far as any that a tile may join it with.
    int wide(int i) const { return extents[std::max(0, i - (kGroup - 1))].active; }

    // Tokens with more than `row` active rows.
    int reaching(int row) const {
        const auto reaches = [row](const Extent& extent) { return extent.active > row; };
        return static_cast<int>(std::partition_point(extents.begin(), extents.end(), reaches) - extents.begin());
    }

    // Multiply-adds of a product of one gate's corners by all tokens.
    std::int64_t products() const {
        std::int64_t sum = 0;
        for (const Extent& each : extents) sum += static_cast<std::int64_t>(each.active) * each.active;
        return sum;
    }
};

// The numbers 0 … count - 1 by falling m; equal ones, and NaN at the end, in their own order.
template <class T>
std::vector<int> sorted_by_share(const T* m, int count) {
    std::vector<int> order(count);
    for (int i = 0; i < count; ++i) order[i] = i;
    const auto key = [m](int i) { return m[i] == m[i] ? m[i] : T(-1); };
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return key(i) > key(j); });
    return order;
}

template <class T>
class Gates {
  public:
    Gates(const TrainedLayer<T>& layer, const Table<T>& table)
        : table_(table), unit_(table.units[static_cast<int>(layer.unit)]), gates_(gates_of(layer.unit)),
          U_(layer.U, gates_, layer.dim, table.panel, Side::plain),
          V_(layer.V, gates_, layer.dim, table.panel, Side::plain) {}

    bool has_reset() const { return unit_.activate_reset != nullptr; }
    const Panels<T>& V() const { return V_; }

    void extend(int reach, Team& team) {
        U_.extend(reach, team);
        V_.extend(reach, team);
    }

    // Rows of one panel: all gates, VCGRU's last without its reset part.
    void first(const Batch<T>& batch, int panel) const {
        const int row = panel * table_.panel, count = batch.reaching(row);
        for (int gate = 0; gate < gates_; ++gate) {
            const std::ptrdiff_t at = gate * batch.rows[0].plane + row;
            table_.multiply(V_.panel(gate, panel), batch.xbar.data(), count, 0, at, false);
            if (has_reset() && gate == gates_ - 1) continue;
            table_.multiply(U_.panel(gate, panel), batch.hbar.data(), count, 0, at, true);
        }
        for (int i = 0; i < count; ++i) unit_.activate(batch.rows[i], row, row + table_.panel);
    }

    // VCGRU's last gate, when the first part is done for all panels.
    void second(const Batch<T>& batch, int panel) const {
        const int row = panel * table_.panel, count = batch.reaching(row), gate = gates_ - 1;
        const std::ptrdiff_t at = gate * batch.rows[0].plane + row;
        table_.multiply(U_.panel(gate, panel), batch.reset.data(), count, 0, at, true);
        for (int i = 0; i < count; ++i) unit_.activate_reset(batch.rows[i], row, row + table_.panel);
    }

  private:
    const Table<T>& table_;
    const UnitTable<T>& unit_;
    int gates_;
    Panels<T> U_, V_;
};

// A team for a call, or the caller alone where there is less to do than it takes to start a thread.
template <class T>
int worthwhile(const TrainedLayer<T>& layer, int threads) {
    constexpr double kWorthStarting = 8e6;  // multiply-adds, counted densely
    const double dense = 2.0 * gates_of(layer.unit) * layer.dim * layer.dim * layer.steps * layer.batch;
    return dense < kWorthStarting ? 1 : threads;
}

}  // namespace vcdeploy::training
