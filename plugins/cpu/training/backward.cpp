// The backward pass: one function per part listed in training.h.
#include "system/denormals.h"
#include "training/batch.h"
#include "training/dispatch.h"
#include "training/panels.h"
#include "training/weight_gradients.h"

namespace vcdeploy::training {
namespace {

template <class T>
class BackwardPass {
  public:
    BackwardPass(const TrainedLayer<T>& layer, const Backward<T>& call, const Table<T>& table, int threads)
        : layer_(layer), call_(call), table_(table), unit_(table.units[static_cast<int>(layer.unit)]),
          G_(gates_of(layer.unit)), B_(layer.batch), D_(layer.dim), tokens_(layer.steps * layer.batch),
          slope_(static_cast<T>(layer.softness.sharpness * layer.dim)), width_(row_width<T>(layer.dim)),
          team_(worthwhile(layer, threads)), order_(sorted_by_m(call.M, tokens_)),
          V_(layer.V, G_, D_, table.panel, Side::transposed) {}

    void run() {
        make_masks();
        if (call_.C0) recompute_cells();
        go_back();
        make_dX();
        make_dU_and_dV();
    }

  private:
    static constexpr int kBlock = 96;  // tokens of the sorted list multiplied together

    const T* before(int n) const {
        return n < B_ ? call_.H0 + static_cast<std::size_t>(n) * D_ : call_.Y + static_cast<std::size_t>(n - B_) * D_;
    }
    const T* x(int n) const { return call_.X + static_cast<std::size_t>(n) * D_; }
    // The first gate of token n; layout as in Forward.
    const T* gates(int n) const {
        const std::size_t step = places_[n / B_ * B_];
        return call_.gates + G_ * step + (places_[n] - step);
    }
    // The mask of token n; all tokens of a dense unit share one.
    const T* mask(int n) const { return e_.data() + (call_.M ? places_[n] : 0); }
    // Columns of token n's dX that go_back() leaves to make_dX(): whole panels where the mask is 1.
    int plain(int n) const { return extents_[n].ones / table_.panel * table_.panel; }

    // Computes the extent, mask and offset of every token. Only active rows are stored.
    void make_masks() {
        extents_.resize(tokens_);
        places_.resize(tokens_ + 1);
        counts_.assign(D_ + 1, 0);
        for (int n = 0; n < tokens_; ++n) {
            extents_[n] = call_.M ? extent_of(call_.M[n], D_, layer_.softness) : Extent{D_, D_};
            places_[n] = plane_;
            plane_ += rounded_up(extents_[n].active, kPadding);
            if (extents_[n].active > 0) ++counts_[extents_[n].active - 1];
        }
        places_[tokens_] = plane_;
        for (int k = D_ - 1; k >= 0; --k) counts_[k] += counts_[k + 1];
        d_ = Scratch<T>(plane_ * G_);
        e_ = Scratch<T>(call_.M ? plane_ : D_);
        if (!call_.M) {
            std::fill_n(e_.data(), D_, T(1));
            return;
        }
        distribute(team_, layer_.steps, kElement * tokens_ * D_, [&](int t, int) {
            for (int n = t * B_; n < (t + 1) * B_; ++n)
                soften(call_.M[n], D_, layer_.softness, extents_[n], e_.data() + places_[n]);
        });
    }

    Rows<T> rows_of(int n) {
        Rows<T> rows{};
        rows.h = before(n);
        rows.e = mask(n);
        rows.gates = const_cast<T*>(gates(n));  // the backward pass only reads them
        rows.plane = static_cast<std::ptrdiff_t>(places_[(n / B_ + 1) * B_] - places_[n / B_ * B_]);
        rows.slope = slope_;
        return rows;
    }

    // VCLSTM: recomputes the cell before every step from the gates, without products, one sequence at a time.
    void recompute_cells() {
        cells_ = Scratch<T>(plane_);
        distribute(team_, B_, kElement * tokens_ * D_, [&](int b, int) {
            const T* first = call_.C0 + static_cast<std::size_t>(b) * D_;
            std::vector<T> c(first, first + D_);
            for (int n = b; n < tokens_; n += B_) {
                std::copy_n(c.data(), extents_[n].active, cells_.data() + places_[n]);
                Rows<T> rows = rows_of(n);
                rows.c = c.data();
                unit_.update_cell(rows, 0, extents_[n].active);
            }
        });
    }

    // 1. From the last step to the first: d, dh, dc and dS, du and dv from dS, and dX where the mask is not 1.
    void go_back() {
        const int P = table_.panel, through = unit_.backward_reset ? G_ - 1 : G_;  // gates that read hbar itself
        const std::size_t d_plane = static_cast<std::size_t>(B_) * width_;
        Buffer<T> d(d_plane * G_), dhbar(d_plane), dxbar(d_plane);
        Buffer<T> du(d_plane), dv(d_plane);  // [B][width]: contribution of each sequence
        std::vector<T> dm(B_);
        Panels<T> U(layer_.U, G_, D_, P, Side::transposed);
        U.extend(extents_[order_[0]].active, team_);
        V_.extend(extents_[order_[0]].active, team_);
        prefer_huge_pages(call_.dX, static_cast<std::size_t>(tokens_) * D_ * sizeof(T));
        Batch<T> batch;
        std::vector<Operand<T>> to_hbar, to_xbar;

        const auto row_of = [&](Buffer<T>& buffer, int b) {
            return buffer.data() + static_cast<std::size_t>(b) * width_;
        };
        const auto finish = [&](int n, int b) {
            const Extent extent = extents_[n];
            const T *of_hbar = row_of(dhbar, b), *of_xbar = row_of(dxbar, b);
            T* dh = call_.dH + static_cast<std::size_t>(b) * D_;
            for (int gate = 0; gate < G_; ++gate)
                std::copy_n(row_of(d, b) + gate * d_plane, extent.active, d_.data() + gate * plane_ + places_[n]);
            const T *e = mask(n), *h = before(n);
            T* dx = call_.dX + static_cast<std::size_t>(n) * D_;
            const int begin = plain(n);
            T ds = 0;
            if (call_.M) {
                const int soft = extent.ones, size = extent.active - soft;
                const T m = call_.M[n];
                const T sum = dm[b] + call_.dM[n] + table_.slope_dot(slope_, e + soft, of_hbar + soft, h + soft, size) +
                              table_.slope_dot(slope_, e + soft, of_xbar + soft, x(n) + soft, size);
                ds = call_.dS[n] = sum * m * (1 - m);
            }
            for (int k = begin; k < D_; ++k) dx[k] = call_.M ? ds * layer_.v[k] : T(0);
            table_.add_product(e + begin, of_xbar + begin, dx + begin, extent.active - begin);
            table_.add_product(e, of_hbar, dh, extent.active);
            if (!call_.M) return;
            table_.add_scaled(ds, layer_.u, dh, D_);
            table_.add_scaled(ds, h, row_of(du, b), D_);
            table_.add_scaled(ds, x(n), row_of(dv, b), D_);
        };
        const auto begin = [&](int i, int n, int b) {
            const Rows<T>& rows = batch.rows[i];
            const int active = extents_[n].active, wide = batch.wide(i);
            table_.add_scaled(T(1), call_.dY + static_cast<std::size_t>(n) * D_, rows.dh, D_);
            dm[b] = unit_.backward(rows, active);
            for (int gate = 0; gate < G_; ++gate)
                std::fill(rows.d + gate * d_plane + active, rows.d + gate * d_plane + wide, T(0));
        };

        for (int t = layer_.steps - 1; t >= 0; --t) {
            const std::vector<int> order =
                sorted_by_m(call_.M ? call_.M + static_cast<std::size_t>(t) * B_ : nullptr, B_);
            batch.clear();
            to_hbar.clear();
            to_xbar.clear();
            for (int b : order) {
                const int n = t * B_ + b;
                Rows<T> rows = rows_of(n);
                rows.d = row_of(d, b);
                rows.d_plane = static_cast<std::ptrdiff_t>(d_plane);
                rows.dbar = row_of(dhbar, b);
                rows.dh = call_.dH + static_cast<std::size_t>(b) * D_;
                rows.c = call_.C0 ? cells_.data() + places_[n] : nullptr;
                rows.dc = call_.C0 ? call_.dC + static_cast<std::size_t>(b) * D_ : nullptr;
                batch.add(rows, extents_[n]);
                to_hbar.push_back({rows.d, rows.dbar, extents_[n].active});
                to_xbar.push_back({rows.d, row_of(dxbar, b), extents_[n].active});
            }
            distribute(team_, B_, kElement * B_ * D_, [&](int i, int) {
                const int b = order[i];
                if (t < layer_.steps - 1) finish((t + 1) * B_ + b, b);
                begin(i, t * B_ + b, b);
            });
            const std::int64_t products = batch.products();
            const int panels = batch.panels(P);
            if (unit_.backward_reset)
                distribute(team_, panels, products, [&](int panel, int) {
                    const int row = panel * P, count = batch.reaching(row);
                    table_.multiply(U.panel(G_ - 1, panel), U.after(G_ - 1, panel, G_ - 1, G_), to_hbar.data(), count,
                                    static_cast<std::ptrdiff_t>((G_ - 1) * d_plane), row, false);
                    for (int i = 0; i < count; ++i)
                        unit_.backward_reset(batch.rows[i], row, std::min(row + P, batch.extents[i].active));
                });
            // dm needs Σ dxbar_i x_i e'_i, hence the rows of dxbar where the mask is neither 0 nor 1: the panels of V
            // from the first that any token needs, numbered after those of U.
            const int soft = batch.extents.back().ones / P;
            distribute(team_, panels + std::max(0, panels - soft), through * products, [&](int number, int) {
                const bool of_U = number < panels;
                const Panels<T>& weights = of_U ? U : V_;
                const int panel = of_U ? number : number - panels + soft, row = panel * P;
                const int first = of_U ? 0 : batch.plain_before(row + P), count = batch.reaching(row) - first;
                const int gates = of_U ? through : G_;
                for (int gate = 0; gate < gates; ++gate)
                    table_.multiply(weights.panel(gate, panel), weights.after(gate, panel, 0, gates),
                                    (of_U ? to_hbar : to_xbar).data() + first, count,
                                    static_cast<std::ptrdiff_t>(gate * d_plane), row, gate > 0 || gates < G_);
            });
        }
        distribute(team_, B_, kElement * B_ * D_, [&](int b, int) { finish(b, b); });
        if (!call_.M) return;
        std::fill_n(call_.du, D_, T(0));
        std::fill_n(call_.dv, D_, T(0));
        for (int b = 0; b < B_; ++b) {
            table_.add_scaled(T(1), row_of(du, b), call_.du, D_);
            table_.add_scaled(T(1), row_of(dv, b), call_.dv, D_);
        }
    }

    // 2. dX = e ⊙ dxbar + dS v where the mask is 1.
    void make_dX() {
        const int P = table_.panel;
        const std::size_t size = static_cast<std::size_t>(kBlock) * width_;
        std::vector<Scratch<T>> scratch;
        for (int i = 0; i < team_.size(); ++i) scratch.emplace_back(G_ * size);
        const int blocks = (tokens_ + kBlock - 1) / kBlock;
        distribute(team_, blocks, std::int64_t{G_} * D_ * D_ * tokens_, [&](int block, int member) {
            const int begin = block * kBlock, end = std::min(tokens_, begin + kBlock),
                      wide = extents_[order_[begin]].active;
            std::vector<Operand<T>> operands;
            for (int i = begin; i < end && plain(order_[i]) > 0; ++i) {
                const int n = order_[i], active = extents_[n].active;
                T* d = scratch[member].data() + static_cast<std::size_t>(i - begin) * width_;
                for (int gate = 0; gate < G_; ++gate) {
                    T* own = d + gate * size;
                    std::fill(std::copy_n(d_.data() + gate * plane_ + places_[n], active, own), own + wide, T(0));
                }
                operands.push_back({d, call_.dX + static_cast<std::size_t>(n) * D_, active});
            }
            int count = static_cast<int>(operands.size());
            for (int panel = 0; count > 0; ++panel) {
                for (int gate = 0; gate < G_; ++gate)
                    table_.multiply(V_.panel(gate, panel), V_.after(gate, panel, 0, G_), operands.data(), count,
                                    static_cast<std::ptrdiff_t>(gate * size), panel * P, gate > 0);
                while (count > 0 && plain(order_[begin + count - 1]) <= (panel + 1) * P) --count;
            }
            for (std::size_t i = 0; call_.M && i < operands.size(); ++i) {
                const int n = order_[begin + i];
                table_.add_scaled(call_.dS[n], layer_.v, operands[i].y, plain(n));
            }
        });
    }

    // 3. The weight gradients. In VCGRU the last gate of U reads r ⊙ hbar.
    void make_dU_and_dV() {
        enum { kHbar, kXbar, kReset };
        const std::size_t size = static_cast<std::size_t>(G_) * D_ * D_;
        for (T* gradient : {call_.dU, call_.dV}) prefer_huge_pages(gradient, size * sizeof(T));
        using Gradients = WeightGradients<T>;
        const int through = unit_.backward_reset ? G_ - 1 : G_;
        std::vector<typename Gradients::Source> sources{{0, through, call_.dU}, {0, G_, call_.dV}};
        if (through < G_) sources.push_back({through, G_, call_.dU});
        Gradients(table_, G_, D_, counts_, sources, team_)
            .run(
                tokens_, [&](int i) { return extents_[order_[i]].active; },
                [&](int i, int gate) { return d_.data() + gate * plane_ + places_[order_[i]]; },
                [&](int i, int source) -> typename Gradients::Input {
                    const int n = order_[i];
                    return {mask(n), source == kXbar ? x(n) : before(n), source == kReset ? gates(n) : nullptr};
                });
    }

    const TrainedLayer<T>& layer_;
    const Backward<T>& call_;
    const Table<T>& table_;
    const UnitTable<T>& unit_;
    int G_, B_, D_, tokens_;
    T slope_;
    int width_;
    Team team_;
    std::vector<int> order_;  // tokens by descending m
    std::vector<Extent> extents_;
    std::vector<std::size_t> places_;  // offset of each token's rows in a plane, then the plane's end
    std::vector<int> counts_;          // tokens with more than k active dimensions
    Panels<T> V_;
    std::size_t plane_ = 0;
    Scratch<T> e_, d_, cells_;  // [plane] (dense: [D]), [G][plane], [plane]
};

}  // namespace

template <class T>
void run_backward(const TrainedLayer<T>& layer, const Backward<T>& call, int threads, const std::string& isa) {
    const FlushDenormals flush;
    BackwardPass<T>(layer, call, choose_table<T>(isa), threads).run();
}

template void run_backward(const TrainedLayer<float>&, const Backward<float>&, int, const std::string&);
template void run_backward(const TrainedLayer<double>&, const Backward<double>&, int, const std::string&);

}  // namespace vcdeploy::training
