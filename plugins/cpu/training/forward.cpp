// The forward pass: in every step the scheduler of each sequence, then the panels.
#include <cmath>
#include <limits>

#include "denormals.h"
#include "training/dispatch.h"
#include "training/gates.h"

namespace vcdeploy::training {
namespace {

template <class T>
class ForwardPass {
  public:
    ForwardPass(const TrainedLayer<T>& layer, const Forward<T>& call, const Table<T>& table, int threads)
        : layer_(layer), call_(call), table_(table), unit_(table.units[static_cast<int>(layer.unit)]),
          gates_(layer, table), team_(worthwhile(layer, threads)), width_(rounded_up(layer.dim, kPadding)),
          plane_(static_cast<std::size_t>(width_) * layer.batch), extents_(layer.batch), e_(plane_), hbar_(plane_),
          xbar_(plane_), reset_(plane_), sums_(plane_ * gates_of(layer.unit)) {}

    void run() {
        for (int t = 0; t < layer_.steps; ++t) step(t);
    }

  private:
    const T* before(int t, int b) const {
        const T* row = t == 0 ? call_.H0 : call_.Y + static_cast<std::size_t>(t - 1) * layer_.batch * layer_.dim;
        return row + static_cast<std::size_t>(b) * layer_.dim;
    }

    void step(int t) {
        const int B = layer_.batch, D = layer_.dim, P = table_.panel;
        share_out(team_, B, std::int64_t{4} * B * D, [&](int b, int) { schedule(t, b); });

        batch_.clear();
        for (int b : sorted_by_share(call_.M + static_cast<std::size_t>(t) * B, B)) {
            const std::size_t at = static_cast<std::size_t>(b) * width_;
            Rows<T> token{};
            token.h = before(t, b);
            token.e = e_.data() + at;
            token.gates = sums_.data() + at;
            token.plane = static_cast<std::ptrdiff_t>(plane_);
            token.hbar = hbar_.data() + at;
            token.reset = reset_.data() + at;
            token.c = call_.C ? call_.C + static_cast<std::size_t>(b) * D : nullptr;
            token.next = call_.Y + (static_cast<std::size_t>(t) * B + b) * D;
            batch_.add(token, extents_[b], xbar_.data() + at);
            const int i = batch_.size() - 1, active = extents_[b].active;
            for (T* row : {hbar_.data(), xbar_.data(), reset_.data()})
                std::fill(row + at + active, row + at + batch_.wide(i), T(0));
        }
        gates_.extend(batch_.widest(), team_);

        const int panels = batch_.panels(P), gates = gates_of(layer_.unit);
        const auto update = [&](int panel) {
            const int row = panel * P, count = batch_.reaching(row);
            for (int i = 0; i < count; ++i)
                unit_.update(batch_.rows[i], row, std::min(row + P, batch_.extents[i].active));
        };
        const std::int64_t products = batch_.products();
        const bool reset = gates_.has_reset();
        share_out(team_, panels, 2 * gates * products, [&](int panel, int) {
            gates_.first(batch_, panel);
            if (!reset) update(panel);
        });
        if (!reset) return;
        share_out(team_, panels, products, [&](int panel, int) {
            gates_.second(batch_, panel);
            update(panel);
        });
    }

    // m and the mask of one sequence, what is multiplied, and what of the state stays.
    void schedule(int t, int b) {
        const int D = layer_.dim;
        const std::size_t token = static_cast<std::size_t>(t) * layer_.batch + b;
        const std::size_t at = static_cast<std::size_t>(b) * width_;
        const T *h = before(t, b), *x = call_.X + token * D;
        const double logit = table_.wide_dot(layer_.u, h, D) + table_.wide_dot(layer_.v, x, D) + layer_.b;
        const T m = static_cast<T>(1 / (1 + std::exp(-logit)));
        call_.M[token] = m;
        T* next = call_.Y + token * D;
        if (std::isnan(m)) {
            extents_[b] = {0, 0};
            std::fill_n(next, D, std::numeric_limits<T>::quiet_NaN());
            if (call_.C)
                std::fill_n(call_.C + static_cast<std::size_t>(b) * D, D, std::numeric_limits<T>::quiet_NaN());
            return;
        }
        T* e = e_.data() + at;
        extents_[b] = soften(m, D, layer_.softness, e);
        const int active = extents_[b].active;
        table_.scale(e, h, hbar_.data() + at, active);
        table_.scale(e, x, xbar_.data() + at, active);
        std::copy(h + active, h + D, next + active);
    }

    const TrainedLayer<T>& layer_;
    const Forward<T>& call_;
    const Table<T>& table_;
    const UnitTable<T>& unit_;
    Gates<T> gates_;
    Team team_;
    int width_;          // of a row of working memory
    std::size_t plane_;  // of all sequences' rows
    std::vector<Extent> extents_;
    Buffer<T> e_, hbar_, xbar_, reset_, sums_;  // [B][width]; sums [G][B][width]
    Batch<T> batch_;
};

}  // namespace

template <class T>
void run_forward(const TrainedLayer<T>& layer, const Forward<T>& call, int threads, const std::string& isa) {
    const FlushDenormals flush;
    ForwardPass<T>(layer, call, choose_table<T>(isa), threads).run();
}

template void run_forward(const TrainedLayer<float>&, const Forward<float>&, int, const std::string&);
template void run_forward(const TrainedLayer<double>&, const Forward<double>&, int, const std::string&);

}  // namespace vcdeploy::training
