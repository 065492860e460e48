// The upper-left corner of a packed matrix times a vector: where a step spends its time.
//
// Included by kernels.cpp after simd/simd.h. Reads only the active rows (up to the end of a panel) and the requested
// columns.
#pragma once

#include <type_traits>

#include "kernels/table.h"
#include "weights/layout.h"

namespace vcdeploy::VCDEPLOY_ISA {

static inline int lesser(int a, int b) { return a < b ? a : b; }
static inline int greater(int a, int b) { return a > b ? a : b; }

// Prefetches kAhead bytes ahead. Unlike the hardware prefetcher, this continues past the end of a page.
template <std::size_t Bytes>
static inline void look_ahead([[maybe_unused]] const void* from) {
#if defined(__GNUC__)
    if constexpr (kAhead > 0)
#pragma GCC unroll 16
        for (std::size_t line = 0; line < Bytes; line += 64)
            __builtin_prefetch(static_cast<const char*>(from) + kAhead + line);
#endif
}

// Partial sums of a product: about eight independent registers hide the latency of an addition.
constexpr int depth_of(int gates) { return (8 + gates * kRegisters - 1) / (gates * kRegisters); }

// sums [Gates][16] += weights [columns][Gates][16] times x [columns].
template <int Gates, class Weight>
static inline void multiply_columns(const Weight* w, const float* x, int columns, float* sums) {
    constexpr int kDepth = depth_of(Gates);
    Rows sum[kDepth][Gates];
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
        sum[0][g] = load(sums + g * kPanel);
#pragma GCC unroll 8
        for (int d = 1; d < kDepth; ++d) sum[d][g] = all(0.0f);
    }
    int j = 0;
    for (; j + kDepth <= columns; j += kDepth) {
        look_ahead<kDepth * Gates * kPanel * sizeof(Weight)>(w + j * Gates * kPanel);
#pragma GCC unroll 8
        for (int d = 0; d < kDepth; ++d) {
            const Rows xj = all(x[j + d]);
#pragma GCC unroll 8
            for (int g = 0; g < Gates; ++g)
                sum[d][g] = multiply_add(xj, widened(w + ((j + d) * Gates + g) * kPanel), sum[d][g]);
        }
    }
    for (; j < columns; ++j) {
        const Rows xj = all(x[j]);
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) sum[0][g] = multiply_add(xj, widened(w + (j * Gates + g) * kPanel), sum[0][g]);
    }
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
#pragma GCC unroll 8
        for (int d = 1; d < kDepth; ++d) sum[0][g] = sum[0][g] + sum[d][g];
        store(sums + g * kPanel, sum[0][g]);
    }
}

// The same for `Count` sequences that share the weights. Each gets the bits it would get alone: the columns of a partial
// sum are read in a pass of their own, so that the sums of all sequences fit in registers.
template <int Gates, int Count, class Weight>
static inline void multiply_columns(const Weight* w, const float* const (&x)[Count], int columns,
                                    float* const (&sums)[Count]) {
    constexpr int kDepth = depth_of(Gates);
    const int whole = columns / kDepth * kDepth;
#pragma GCC unroll 8
    for (int d = 0; d < kDepth; ++d) {
        Rows sum[Count][Gates];
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n)
#pragma GCC unroll 8
            for (int g = 0; g < Gates; ++g) sum[n][g] = d == 0 ? load(sums[n] + g * kPanel) : all(0.0f);
        const auto add = [&](int j) {
            Rows weight[Gates];
#pragma GCC unroll 8
            for (int g = 0; g < Gates; ++g) weight[g] = widened(w + (j * Gates + g) * kPanel);
#pragma GCC unroll 8
            for (int n = 0; n < Count; ++n) {
                const Rows xj = all(x[n][j]);
#pragma GCC unroll 8
                for (int g = 0; g < Gates; ++g) sum[n][g] = multiply_add(xj, weight[g], sum[n][g]);
            }
        };
        for (int j = d; j < whole; j += kDepth) add(j);
        if (d == 0)
            for (int j = whole; j < columns; ++j) add(j);
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n)
#pragma GCC unroll 8
            for (int g = 0; g < Gates; ++g) {
                float* at = sums[n] + g * kPanel;
                store(at, d == 0 ? sum[n][g] : load(at) + sum[n][g]);
            }
    }
}

// The same in integers: counts [Gates][16] += weights [column pairs][Gates][16 rows of two] times levels [columns].
// An odd last column is paired with a level of 0.
template <int Gates>
static inline void multiply_pairs(const std::uint8_t* w, const std::int16_t* levels, int columns,
                                  std::int32_t* counts) {
    constexpr int kDepth = (kCountsApart + Gates - 1) / Gates;
    Counts sum[kDepth][Gates];
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
        sum[0][g] = load(counts + g * kPanel);
#pragma GCC unroll 8
        for (int d = 1; d < kDepth; ++d) sum[d][g] = start_of(0);
    }
    const auto add = [&](int j, Counts(&into)[Gates]) {
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g)
            into[g] = multiply_add(column_pair(w + (j * Gates + g * 2) * kPanel), levels + j, into[g]);
    };
    int j = 0;
#pragma GCC unroll 4
    for (; j + 2 * (kDepth - 1) < columns; j += 2 * kDepth)
#pragma GCC unroll 8
        for (int d = 0; d < kDepth; ++d) add(j + 2 * d, sum[d]);
    for (; j < columns; j += 2) add(j, sum[0]);
#pragma GCC unroll 8
    for (int g = 0; g < Gates; ++g) {
#pragma GCC unroll 8
        for (int d = 1; d < kDepth; ++d) sum[0][g] = sum[0][g] + sum[d][g];
        store(counts + g * kPanel, sum[0][g]);
    }
}

// The same for `Count` sequences that share the weights. Integer sums are exact in any order.
template <int Gates, int Count>
static inline void multiply_pairs(const std::uint8_t* w, const std::int16_t* const (&levels)[Count], int columns,
                                  std::int32_t* const (&counts)[Count]) {
    Counts sum[Count][Gates];
#pragma GCC unroll 8
    for (int n = 0; n < Count; ++n)
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) sum[n][g] = load(counts[n] + g * kPanel);
    for (int j = 0; j < columns; j += 2)
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) {
            const ColumnPair pair = column_pair(w + (j * Gates + g * 2) * kPanel);
#pragma GCC unroll 8
            for (int n = 0; n < Count; ++n) sum[n][g] = multiply_add(pair, levels[n] + j, sum[n][g]);
        }
#pragma GCC unroll 8
    for (int n = 0; n < Count; ++n)
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) store(counts[n] + g * kPanel, sum[n][g]);
}

static inline std::int32_t total_of(const std::int16_t* levels, int count) {
    std::int32_t total = 0;
    for (int i = 0; i < count; ++i) total += levels[i];
    return total;
}

// Calls work(panel) for the panels of this part that hold the first `rows` rows.
template <class Work>
static inline void each_panel(int rows, Part mine, Work work) {
    const int panels = panels_of(rows), apart = kPanelsOfShell * mine.members;
    for (int first = kPanelsOfShell * mine.member; first < panels; first += apart)
        for (int panel = first; panel < lesser(first + kPanelsOfShell, panels); ++panel) work(panel);
}

// Visits the packed columns [begin, end) of the panels that hold the first `active` rows, in memory order:
// visit(panel, offset of its weights, first column, number of columns).
template <int Gates, class Visit>
static inline void walk(int active, int begin, int end, Part mine, Visit visit) {
    const int panels = panels_of(active);
    const int shells = greater((panels + kPanelsOfShell - 1) / kPanelsOfShell, (end + kShell - 1) / kShell);
    for (int k = 0; k < shells; ++k) {
        const int above = k * kPanelsOfShell, left = k * kShell;
        const int last = lesser(end, left + kShell);
        if (last <= begin) continue;
        if (k % mine.members == mine.member)
            for (int panel = above; panel < lesser(above + kPanelsOfShell, panels); ++panel)
                visit(panel, panel_start(k, panel, Gates) + begin * Gates * kPanel, begin, last - begin);
        const int first = greater(begin, left);
        if (last <= first) continue;
        each_panel(lesser(left, active), mine, [&](int panel) {
            visit(panel, panel_start(k, panel, Gates) + (first - left) * Gates * kPanel, first, last - first);
        });
    }
}

// A product of one sequence: columns [begin, end) of a matrix times x, for the first `active` rows.
struct Operand {
    const Activations* x;
    int active, begin, end;
    float* sums;           // [panel][stride]
    std::int32_t* counts;  // the same shape, for int8: a panel has the same place in every product of a step
};

// Splits `count` items into groups of Size and, at the end, of smaller powers of two: work(size, first item). The size
// is a compile-time constant.
template <int Size, class Work>
static inline void in_groups(int first, int count, Work work) {
    for (; first + Size <= count; first += Size) work(std::integral_constant<int, Size>{}, first);
    if constexpr (Size > 1) in_groups<Size / 2>(first, count, work);
}

// Sequences that are multiplied by a weight while it is in a register.
constexpr int together(int gates) {
    return gates * kRegisters * 4 <= kSumRegisters ? 4 : gates * kRegisters * 2 <= kSumRegisters ? 2 : 1;
}

// Walks through the weights for several products, sorted by `active`, and calls
// block(how many products as a compile-time constant, the first, panel, offset of its weights, first column, columns).
// More than one: all from column 0 to their last active one.
template <int Gates, class Block>
static inline void walk(const Operand* of, int count, Part mine, Block block) {
    walk<Gates>(of->active, of->begin, of->end, mine, [=](int panel, std::size_t at, int column, int columns) {
        int whole = 0;  // products that need all of these columns
        while (whole < count && of[whole].end >= column + columns) ++whole;
        in_groups<together(Gates)>(0, whole, [&](auto size, int n) { block(size, n, panel, at, column, columns); });
        for (int n = whole; n < count && of[n].end > greater(column, panel * kPanel); ++n)
            block(std::integral_constant<int, 1>{}, n, panel, at, column, of[n].end - column);
    });
}

// sums += W times x for every product.
template <int Gates, class Weight>
static void multiply_widened(const void* weights, const Operand* of, int count, Part mine, int stride) {
    const auto* w = static_cast<const Weight*>(weights);
    walk<Gates>(of, count, mine, [=](auto size, int first, int panel, std::size_t at, int column, int columns) {
        const float* x[size];
        float* sums[size];
        for (int n = 0; n < size; ++n) {
            x[n] = of[first + n].x->value + column;
            sums[n] = of[first + n].sums + panel * stride;
        }
        if constexpr (size == 1)
            multiply_columns<Gates>(w + at, x[0], columns, sums[0]);
        else
            multiply_columns<Gates>(w + at, x, columns, sums);
    });
}

// sum [Panels][Gates][16] += weights of `Panels` panels, from `panel` on and in the same shell, times levels
// [begin, end). The sums stay in registers from the first column to the last.
template <int Gates, int Panels>
static inline void multiply_panels(const std::uint8_t* w, const std::int16_t* levels, int panel, int begin, int end,
                                   Counts (&sum)[Panels][Gates]) {
    constexpr int kDepth = (kCountsApart + Gates * Panels - 1) / (Gates * Panels);
    Counts apart[kDepth][Panels][Gates];
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) {
            apart[0][p][g] = sum[p][g];
#pragma GCC unroll 8
            for (int d = 1; d < kDepth; ++d) apart[d][p][g] = start_of(0);
        }
    const int own = panel / kPanelsOfShell;
    for (int k = own; k == own || k * kShell < end; ++k) {
        const int left = k == own ? 0 : k * kShell, right = (k + 1) * kShell;
        const int first = greater(begin, left), last = lesser(end, right);
        const std::size_t size = static_cast<std::size_t>(right - left) * Gates * kPanel;
        const std::uint8_t* block = w + panel_start(k, panel, Gates) - left * Gates * kPanel;
        const auto add = [&](int j, Counts(&into)[Panels][Gates]) {
#pragma GCC unroll 8
            for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 8
                for (int g = 0; g < Gates; ++g)
                    into[p][g] = multiply_add(column_pair(block + p * size + (j * Gates + g * 2) * kPanel), levels + j,
                                              into[p][g]);
        };
        int j = first;
#pragma GCC unroll 4
        for (; j + 2 * (kDepth - 1) < last; j += 2 * kDepth)
#pragma GCC unroll 8
            for (int d = 0; d < kDepth; ++d) add(j + 2 * d, apart[d]);
        for (; j < last; j += 2) add(j, apart[0]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p)
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) {
            sum[p][g] = apart[0][p][g];
#pragma GCC unroll 8
            for (int d = 1; d < kDepth; ++d) sum[p][g] = sum[p][g] + apart[d][p][g];
        }
}

// Sets or adds to the sums of a gate in a panel: counts times the row's scale times the vector's unit.
template <int Gates>
static inline void store_scaled(const PackedWeights& W, const Operand& of, int panel, int gate, Counts counts, bool add,
                                int stride) {
    float* sums = of.sums + panel * stride + gate * kPanel;
    const Rows value = load(W.scales + (panel * Gates + gate) * kPanel) * all(of.x->unit);
    const Rows product = to_float(counts) * value;
    store(sums, add ? product + load(sums) : product);
}

// multiply_quantized for one product, panel by panel.
template <int Gates>
static void multiply_alone(const PackedWeights& W, const Operand& of, Part mine, const std::int32_t* known, bool add,
                           int stride) {
    const auto* w = static_cast<const std::uint8_t*>(W.weights);
    const Counts start = start_of(of.begin < of.end ? total_of(of.x->level + of.begin, of.end - of.begin) : 0);
    const auto multiply = [&](auto panels, int panel) {
        constexpr int kPanels = panels;
        Counts sum[kPanels][Gates];
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
            for (int g = 0; g < Gates; ++g)
                sum[p][g] = known ? started(load(known + ((panel + p) * Gates + g) * kPanel), start) : start;
        multiply_panels(w, of.x->level, panel, of.begin, of.end, sum);
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
            for (int g = 0; g < Gates; ++g) store_scaled<Gates>(W, of, panel + p, g, sum[p][g], add, stride);
    };
    const int panels = panels_of(of.active);
    for (int panel = kPanelsOfShell * mine.member; panel < panels; panel += kPanelsOfShell * mine.members)
        if (panel + kPanelsOfShell <= panels)
            multiply(std::integral_constant<int, kPanelsOfShell>{}, panel);
        else
            multiply(std::integral_constant<int, 1>{}, panel);
}

// The products in integers, then scaled to floats. Integer sums are exact in any order and each later operation is
// rounded separately, so the result has the same bits everywhere. known: initial sums [panel][Gates][16] of the only
// product, or null. add: add to sums instead of setting them.
template <int Gates>
static void multiply_quantized(const PackedWeights& W, const Operand* of, int count, Part mine,
                               const std::int32_t* known, bool add, int stride) {
    if (count == 1 && of->active <= kPanelOrder) return multiply_alone<Gates>(W, *of, mine, known, add, stride);
    const auto* w = static_cast<const std::uint8_t*>(W.weights);
    for (int n = 0; n < count; ++n) {
        const int begin = of[n].begin, end = of[n].end;
        const Counts start = start_of(begin < end ? total_of(of[n].x->level + begin, end - begin) : 0);
        each_panel(of[n].active, mine, [&](int panel) {
            for (int g = 0; g < Gates; ++g)
                store(of[n].counts + panel * stride + g * kPanel,
                      known ? started(load(known + (panel * Gates + g) * kPanel), start) : start);
        });
    }
    walk<Gates>(of, count, mine, [=](auto size, int first, int panel, std::size_t at, int column, int columns) {
        const std::int16_t* levels[size];
        std::int32_t* counts[size];
        for (int n = 0; n < size; ++n) {
            levels[n] = of[first + n].x->level + column;
            counts[n] = of[first + n].counts + panel * stride;
        }
        if constexpr (size == 1)
            multiply_pairs<Gates>(w + at, levels[0], columns, counts[0]);
        else
            multiply_pairs<Gates>(w + at, levels, columns, counts);
    });
    for (int n = 0; n < count; ++n)
        each_panel(of[n].active, mine, [&](int panel) {
            for (int g = 0; g < Gates; ++g)
                store_scaled<Gates>(W, of[n], panel, g, load(of[n].counts + panel * stride + g * kPanel), add, stride);
        });
}

// sums [panel][stride] += W times x for every product, of `Gates` gates.
template <int Gates>
static inline void multiply(const PackedWeights& W, const Operand* of, int count, Part mine, int stride) {
    switch (W.precision) {
        case Precision::f32: multiply_widened<Gates, float>(W.weights, of, count, mine, stride); break;
        case Precision::f16: multiply_widened<Gates, Half>(W.weights, of, count, mine, stride); break;
        case Precision::bf16: multiply_widened<Gates, Bfloat16>(W.weights, of, count, mine, stride); break;
        case Precision::int8: multiply_quantized<Gates>(W, of, count, mine, nullptr, true, stride); break;
    }
}

// sums [panel][stride], from first_sum on, += W times x of every step, over its active rows and columns.
template <int Gates>
static inline void multiply(const PackedWeights& W, Steps steps, Activations Step::* x, Part mine, int first_sum,
                            int stride) {
    Operand of[kMostSteps];
    for (int n = 0; n < steps.count; ++n) {
        const Step& s = steps[n];
        of[n] = {&(s.*x), s.active, 0, s.active, s.sums + first_sum, s.counts};
    }
    multiply<Gates>(W, of, steps.count, mine, stride);
}

// sums [panel][Gates][16] = V xbar for this part's panels, from the table where there is one: then each step has columns
// of its own to add.
template <int Gates>
static inline void multiply_input(Steps steps, Part mine) {
    constexpr int kSize = Gates * kPanel;
    const PackedWeights& V = steps[0].V;
    const bool with_table = steps[0].tabulated || steps[0].tabulated_counts;
    Operand of[kMostSteps];
    for (int n = 0; n < steps.count; ++n) {
        const Step& s = steps[n];
        of[n] = {&s.input, s.active, s.input_begin & ~1, s.input_end, s.sums, s.counts};
        if (V.precision == Precision::int8) continue;
        of[n].begin = s.input_begin;
        each_panel(s.active, mine, [&](int panel) {
            for (int g = 0; g < Gates; ++g) {
                const int at = panel * kSize + g * kPanel;
                store(s.sums + at, s.tabulated ? load(s.tabulated + at) : all(0.0f));
            }
        });
    }
    const int apart = with_table ? steps.count : 1, together = with_table ? 1 : steps.count;
    for (int n = 0; n < apart; ++n)
        if (V.precision == Precision::int8)
            multiply_quantized<Gates>(V, of + n, together, mine, steps[n].tabulated_counts, false, kSize);
        else if (of[n].begin < of[n].end)
            multiply<Gates>(V, of + n, together, mine, kSize);
}

// Calls work(step, first row) for every active panel of every step.
template <class Work>
static inline void each_panel(Steps steps, Part mine, Work work) {
    for (int n = 0; n < steps.count; ++n)
        each_panel(steps[n].active, mine, [&](int panel) { work(steps[n], panel * kPanel); });
}

// The columns of an output block.
struct Columns {
    int begin, end;
};

// S of one block of `Panels` panels from S of the block after it. Even and odd columns are summed apart.
template <int Panels, class Weight>
static inline void output_sums(const Weight* w, std::size_t size, const OutputCall& call, Columns of,
                               const float* after, float* S) {
    Rows sum[2][Panels];
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) {
        sum[0][p] = load(after + p * kPanel);
        sum[1][p] = all(0.0f);
    }
    const auto add = [&](int j, Rows(&into)[Panels]) {
        const Rows x = all(call.h[j]);
#pragma GCC unroll 8
        for (int p = 0; p < Panels; ++p) into[p] = multiply_add(x, widened(w + p * size + j * kPanel), into[p]);
    };
    int j = of.begin;
    for (; j + 2 <= of.end; j += 2) {
        add(j, sum[0]);
        add(j + 1, sum[1]);
    }
    if (j < of.end) add(j, sum[0]);
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) store(S + p * kPanel, sum[0][p] + sum[1][p]);
}

// The same for int8 weights, in exact integers.
template <int Panels>
static inline void output_counts(const std::uint8_t* w, std::size_t size, const OutputCall& call, Columns of,
                                 const std::int32_t* after, std::int32_t* S) {
    Counts counts[Panels];
    const Counts start = start_of(total_of(call.levels + of.begin, of.end - of.begin));
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) counts[p] = started(load(after + p * kPanel), start);
    for (int j = of.begin; j < of.end; j += 2)
#pragma GCC unroll 8
        for (int p = 0; p < Panels; ++p)
            counts[p] = multiply_add(column_pair(w + p * size + j * kPanel), call.levels + j, counts[p]);
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) store(S + p * kPanel, settled(counts[p]));
}

constexpr int kOutputPanels = 4;  // panels that share a pass over h

// Calls work(panels, panel) for all panels of a part; the first is a compile-time constant.
template <class Work>
static inline void by_panels(int rows, Part mine, Work work) {
    const int panels = panels_of(rows);
    for (int panel = kOutputPanels * mine.member; panel < panels; panel += kOutputPanels * mine.members) {
        if (panel + kOutputPanels <= panels)
            work(std::integral_constant<int, kOutputPanels>{}, panel);
        else
            for (int p = panel; p < panels; ++p) work(std::integral_constant<int, 1>{}, p);
    }
}

// Calls block(panels, panel, call, columns, offset of S, offset of S of the block after it) for every changed block of
// every call, from the last block to the first, and then finish(panel, call) for every panel.
template <class Block, class Finish>
static inline void walk_output(const OutputCalls& calls, Part mine, Block block, Finish finish) {
    const std::size_t rows = rounded_up(calls.rows, kPanel);
    int changed = 0;
    for (int n = 0; n < calls.count; ++n) changed = greater(changed, calls.call[n].changed);
    by_panels(calls.rows, mine, [&](auto panels, int panel) {
        for (int b = output_blocks(changed) - 1; b >= 0; --b) {
            const Columns of{b * kOutputBlock, lesser((b + 1) * kOutputBlock, calls.dim)};
            const std::size_t at = b * rows + panel * kPanel;
            for (int n = 0; n < calls.count; ++n)
                if (calls.call[n].changed > of.begin) block(panels, panel, calls.call[n], of, at, at + rows);
        }
        for (int n = 0; n < calls.count; ++n)
            for (int p = 0; p < panels; ++p) finish((panel + p) * kPanel, calls.call[n]);
    });
}

template <class Weight>
static void output_floats(const PackedWeights& W, const OutputCalls& calls, Part mine) {
    const std::size_t size = static_cast<std::size_t>(calls.dim) * kPanel;
    const auto* w = static_cast<const Weight*>(W.weights);
    walk_output(
        calls, mine,
        [=](auto panels, int panel, const OutputCall& call, Columns of, std::size_t at, std::size_t after) {
            output_sums<panels>(w + panel * size, size, call, of, call.sums + after, call.sums + at);
        },
        [&](int at, const OutputCall& call) { store(call.logits + at, load(call.sums + at) + load(calls.bias + at)); });
}

static void output_int8(const PackedWeights& W, const OutputCalls& calls, Part mine) {
    const std::size_t size = static_cast<std::size_t>(rounded_up(calls.dim, 2)) * kPanel;
    const auto* w = static_cast<const std::uint8_t*>(W.weights);
    walk_output(
        calls, mine,
        [=](auto panels, int panel, const OutputCall& call, Columns of, std::size_t at, std::size_t after) {
            output_counts<panels>(w + panel * size, size, call, of, call.counts + after, call.counts + at);
        },
        [&](int at, const OutputCall& call) {
            const Rows value = load(W.scales + at) * all(call.unit);
            store(call.logits + at, whole_to_float(load(call.counts + at)) * value + load(calls.bias + at));
        });
}

static void output(const PackedWeights& W, const OutputCalls& calls, Part mine) {
    switch (W.precision) {
        case Precision::f32: output_floats<float>(W, calls, mine); break;
        case Precision::f16: output_floats<Half>(W, calls, mine); break;
        case Precision::bf16: output_floats<Bfloat16>(W, calls, mine); break;
        case Precision::int8: output_int8(W, calls, mine); break;
    }
}

}  // namespace vcdeploy::VCDEPLOY_ISA
