// The forward pass: in every step, first the scheduler and the inputs of each sequence, then the panels.
#include <cmath>
#include <limits>

#include "system/denormals.h"
#include "training/batch.h"
#include "training/dispatch.h"
#include "training/panels.h"

namespace vcdeploy::training {
namespace {

template <class T>
class ForwardPass {
  public:
    ForwardPass(const TrainedLayer<T>& layer, const Forward<T>& call, const Table<T>& table, int threads)
        : layer_(layer), call_(call), table_(table), unit_(table.units[static_cast<int>(layer.unit)]),
          G_(gates_of(layer.unit)), team_(worthwhile(layer, threads)), width_(row_width<T>(layer.dim)),
          U_(layer.U, G_, layer.dim, table.panel, Side::plain), V_(layer.V, G_, layer.dim, table.panel, Side::plain),
          extents_(layer.batch), e_(rows(1)), hbar_(rows(1)), xbar_(rows(1)), reset_(rows(1)),
          unkept_(call.gates ? 0 : rows(G_)), gates_(call.gates ? call.gates : unkept_.data()) {
        if (!call.M) {
            std::fill_n(extents_.begin(), layer.batch, Extent{layer.dim, layer.dim});
            std::fill_n(e_.data(), rows(1), T(1));
        }
        const std::size_t tokens = static_cast<std::size_t>(layer.steps) * layer.batch;
        prefer_huge_pages(call.Y, tokens * layer.dim * sizeof(T));
        if (call.gates) prefer_huge_pages(call.gates, tokens * G_ * rounded_up(layer.dim, kPadding) * sizeof(T));
    }

    void run() {
        for (int t = 0; t < layer_.steps; ++t) step(t);
    }

  private:
    // Size of the working memory for `count` rows per sequence.
    std::size_t rows(int count) const { return static_cast<std::size_t>(count) * layer_.batch * width_; }

    const T* before(int t, int b) const {
        const T* row = t == 0 ? call_.H0 : call_.Y + static_cast<std::size_t>(t - 1) * layer_.batch * layer_.dim;
        return row + static_cast<std::size_t>(b) * layer_.dim;
    }

    void step(int t) {
        const int B = layer_.batch, D = layer_.dim, P = table_.panel;
        distribute(team_, B, kElement * B * D, [&](int b, int) { prepare(t, b); });

        batch_.clear();
        of_U_.clear();
        of_V_.clear();
        of_reset_.clear();
        std::vector<std::size_t> places(B);
        plane_ = 0;
        for (int b = 0; b < B; ++b) {
            places[b] = plane_;
            plane_ += rounded_up(extents_[b].active, kPadding);
        }
        for (int b : sorted_by_m(call_.M ? call_.M + static_cast<std::size_t>(t) * B : nullptr, B)) {
            const std::size_t at = static_cast<std::size_t>(b) * width_;
            const int active = extents_[b].active;
            Rows<T> token{};
            token.h = before(t, b);
            token.e = e_.data() + at;
            token.gates = gates_ + places[b];
            token.plane = static_cast<std::ptrdiff_t>(plane_);
            token.hbar = hbar_.data() + at;
            token.reset = reset_.data() + at;
            token.c = call_.C ? call_.C + static_cast<std::size_t>(b) * D : nullptr;
            token.next = call_.Y + (static_cast<std::size_t>(t) * B + b) * D;
            batch_.add(token, extents_[b]);
            of_U_.push_back({token.hbar, token.gates, active});
            of_V_.push_back({xbar_.data() + at, token.gates, active});
            of_reset_.push_back({token.reset, token.gates, active});
            const int wide = batch_.wide(batch_.size() - 1);
            for (T* row : {hbar_.data(), xbar_.data(), reset_.data()})
                std::fill(row + at + active, row + at + wide, T(0));
        }
        U_.extend(batch_.widest(), team_);
        V_.extend(batch_.widest(), team_);

        const int panels = batch_.panels(P);
        const bool reset = unit_.activate_reset != nullptr;
        const std::int64_t products = batch_.products();
        distribute(team_, panels, 2 * G_ * products, [&](int panel, int) { make_gates(panel, reset); });
        if (reset) distribute(team_, panels, products, [&](int panel, int) { make_last_gate(panel); });
        if (call_.gates) gates_ += G_ * plane_;
    }

    // Computes the gates of one panel and updates the state. VCGRU (reset): the last gate gets only its V term, the
    // rest follows in make_last_gate().
    void make_gates(int panel, bool reset) {
        const int row = panel * table_.panel, count = batch_.reaching(row);
        for (int gate = 0; gate < G_; ++gate) {
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(gate * plane_) + row;
            const bool waits = reset && gate == G_ - 1;
            const T *of_V = V_.panel(gate, panel), *of_U = U_.panel(gate, panel), *after = V_.after(gate, panel, 0, G_);
            table_.multiply(of_V, waits ? after : of_U, of_V_.data(), count, 0, at, false);
            if (!waits) table_.multiply(of_U, after, of_U_.data(), count, 0, at, true);
        }
        for (int i = 0; i < count; ++i) unit_.activate(batch_.rows[i], row, row + table_.panel);
        if (!reset) update(row, count);
    }

    // VCGRU: adds the term of the last gate that reads r ⊙ hbar of all panels, then updates the state.
    void make_last_gate(int panel) {
        const int row = panel * table_.panel, count = batch_.reaching(row), gate = G_ - 1;
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(gate * plane_) + row;
        const T* after = U_.after(gate, panel, gate, G_);
        table_.multiply(U_.panel(gate, panel), after, of_reset_.data(), count, 0, at, true);
        for (int i = 0; i < count; ++i) unit_.activate_reset(batch_.rows[i], row, row + table_.panel);
        update(row, count);
    }

    void update(int row, int count) {
        for (int i = 0; i < count; ++i)
            unit_.update(batch_.rows[i], row, std::min(row + table_.panel, batch_.extents[i].active));
    }

    // Computes hbar and xbar of one sequence, and copies the part of the state that does not change.
    void prepare(int t, int b) {
        const int D = layer_.dim;
        const std::size_t token = static_cast<std::size_t>(t) * layer_.batch + b;
        const std::size_t at = static_cast<std::size_t>(b) * width_;
        const T *h = before(t, b), *x = call_.X + token * D;
        if (call_.M && !schedule(h, x, token, b)) return;
        const T* e = e_.data() + at;
        const int active = extents_[b].active;
        table_.scale(e, h, hbar_.data() + at, active);
        table_.scale(e, x, xbar_.data() + at, active);
        std::copy(h + active, h + D, call_.Y + token * D + active);
    }

    // Computes m and the mask of one sequence. If m is NaN, fills the state with NaN and returns false.
    bool schedule(const T* h, const T* x, std::size_t token, int b) {
        const int D = layer_.dim;
        const double logit = table_.wide_dot(layer_.u, h, D) + table_.wide_dot(layer_.v, x, D) + layer_.b;
        const T m = static_cast<T>(1 / (1 + std::exp(-logit)));
        call_.M[token] = m;
        if (std::isnan(m)) {
            extents_[b] = {0, 0};
            std::fill_n(call_.Y + token * D, D, std::numeric_limits<T>::quiet_NaN());
            if (call_.C) std::fill_n(call_.C + static_cast<std::size_t>(b) * D, D, std::numeric_limits<T>::quiet_NaN());
            return false;
        }
        extents_[b] = extent_of(m, D, layer_.softness);
        soften(m, D, layer_.softness, extents_[b], e_.data() + static_cast<std::size_t>(b) * width_);
        return true;
    }

    const TrainedLayer<T>& layer_;
    const Forward<T>& call_;
    const Table<T>& table_;
    const UnitTable<T>& unit_;
    int G_;
    Team team_;
    int width_;  // of a row of working memory, in elements
    Panels<T> U_, V_;
    std::vector<Extent> extents_;
    Buffer<T> e_, hbar_, xbar_, reset_;  // [B][width]
    Buffer<T> unkept_;                   // [G][B][width]: the gates of a step, if they are not saved
    T* gates_;                           // of this step, [G][plane]
    std::size_t plane_ = 0;
    Batch<T> batch_;
    std::vector<Operand<T>> of_U_, of_V_, of_reset_;  // hbar, xbar and r ⊙ hbar into the gates
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
