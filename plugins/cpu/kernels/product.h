// The upper-left corner of a packed matrix times a vector: where a step spends its time.
//
// Included by kernels.cpp after simd/simd.h. Reads only the active rows (up to the end of a panel) and the requested
// columns. A row is summed column by column, from the first to the last, alone and in a batch: same bits.
#pragma once

#include <type_traits>

#include "kernels/table.h"
#include "weights/layout.h"

namespace vcdeploy::VCDEPLOY_ISA {

static inline int lesser(int a, int b) { return a < b ? a : b; }
static inline int greater(int a, int b) { return a > b ? a : b; }

// How many sequences are multiplied by a weight while it is in a register: at most `most`, if each has so many registers
// of sums and all may have `limit`.
constexpr int together(int registers, int limit, int most) {
    while (most > 1 && registers * most > limit) most /= 2;
    return most;
}

constexpr std::size_t kNearCache = 1 << 20;

// Floating-point weights times floats.
template <class Stored, int Gates>
struct Floats {
    using Weight = Stored;
    static constexpr int kColumns = 1;                // columns that are multiplied at once
    static constexpr int kSums = Gates * kRegisters;  // registers of sums
    static constexpr int kTogether = together(kSums, kSumRegisters, kRegisters == 1 ? 8 : 4);
    // Eight sums hide the latency of an addition. Registers of 512 bits wait for weights in f32 anyway: reading fewer
    // panels at once is faster.
    static constexpr int kEnough = kRegisters == 1 && sizeof(Weight) == sizeof(float) ? 4 : 8;

    Rows gate[Gates];  // the sums of a panel

    static const float* values(const Activations& x) { return x.value; }
    static Rows spread(const float* x) { return all(*x); }
    void add(const Weight* w, Rows x) {
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) gate[g] = multiply_add(x, widened(w + g * kPanel), gate[g]);
    }

    // Adds column j times x to the sums of each of `Count` products.
    template <int Count, class Product>
    static void add_to_all(Floats* sums, const Weight* w, const Product* of, int j) {
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) {
            const Rows weights = widened(w + g * kPanel);
#pragma GCC unroll 8
            for (int n = 0; n < Count; ++n)
                sums[n].gate[g] = multiply_add(spread(values(*of[n].x) + j), weights, sums[n].gate[g]);
        }
    }
};

// What int8 and w8a8 do differently.
struct Int8 {
    template <int Gates>
    using Panel = PanelCounts<Gates>;
    static constexpr int kColumns = kColumnsAtOnce;
    static constexpr int most_together(int registers) { return together(registers, kSumRegisters * 2 / 3, 4); }
    static const std::int16_t* values(const Activations& x) { return x.level; }
    static Counts start_of(std::int32_t total) { return VCDEPLOY_ISA::start_of(total); }
};
struct W8a8 {
    template <int Gates>
    using Panel = PanelBytes<Gates>;
    static constexpr int kColumns = kColumnGroup;
    static constexpr int most_together(int registers) { return together(registers, kByteSumRegisters, 8); }
    static const std::int8_t* values(const Activations& x) { return x.level_8; }
    static Counts start_of(std::int32_t total) { return start_of_bytes(total); }
};

// Weights times levels, in exact integers. Outside of a product's columns levels are 0 to both ends of their panel.
template <class Quantized, int Gates>
struct Integers {
    using Weight = std::uint8_t;
    static constexpr int kColumns = Quantized::kColumns;
    static constexpr int kSums = Quantized::template Panel<Gates>::kRegisters;  // registers of sums
    static constexpr int kTogether = Quantized::most_together(kSums);
    static constexpr int kEnough = 8;

    typename Quantized::template Panel<Gates> counts;

    static const auto* values(const Activations& x) { return Quantized::values(x); }
    static auto spread(const auto* x) { return VCDEPLOY_ISA::spread(x); }
    void add(const Weight* w, const auto& x) { add_columns<Gates, 1>({&counts}, w, {x}); }

    // The initial sums of columns [begin, end).
    static Counts start_of(const Activations& x, int begin, int end) {
        return Quantized::start_of(total_of(values(x), begin, end));
    }
    // The sums of a gate, added to the initial ones.
    Counts product(int gate, Counts initial) const { return product_of(counts, gate, initial); }

    // Adds columns j, … times x to the sums of each of `Count` products.
    template <int Count, class Product>
    static void add_to_all(Integers* sums, const Weight* w, const Product* of, int j) {
        typename Quantized::template Panel<Gates>* each[Count];
        decltype(spread(values(*of->x))) x[Count];
#pragma GCC unroll 8
        for (int n = 0; n < Count; ++n) {
            each[n] = &sums[n].counts;
            x[n] = spread(values(*of[n].x) + j);
        }
        add_columns<Gates, Count>(each, w, x);
    }
};

// The shells of a part go round: panel `i` of those that belong to it.
static inline int panel_of_part(int i, Part mine) {
    return (mine.member + i / kPanelsOfShell * mine.members) * kPanelsOfShell + i % kPanelsOfShell;
}

// The number of panels of a part among those that hold the first `rows` rows.
static inline int panels_of_part(int rows, Part mine) {
    const int panels = panels_of(rows), shells = (panels + kPanelsOfShell - 1) / kPanelsOfShell;
    const int count = (shells - mine.member + mine.members - 1) / mine.members * kPanelsOfShell;
    return count > 0 && panel_of_part(count - 1, mine) >= panels ? count - 1 : count;
}

// Calls work(panel) for the panels of this part that hold the first `rows` rows.
template <class Work>
static inline void each_panel(int rows, Part mine, Work work) {
    const int count = panels_of_part(rows, mine);
    for (int i = 0; i < count; ++i) work(panel_of_part(i, mine));
}

// A product of one sequence: columns [begin, end) of a matrix times x, for the first `active` rows. If quantized, begin
// is a multiple of kColumnGroup.
struct Operand {
    const Activations* x;
    int active, begin, end;
    float* sums;           // [panel][stride]
    std::int32_t* counts;  // the same shape, if quantized: a panel has the same place in every product of a step
};

// Multiplies `Panels` panels of a part, from its `first` on, with all sums in registers: begin(panel, sums) sets
// the initial sums, end(panel, sums) takes the last ones.
template <class Sums, int Gates, int Panels, class Begin, class End>
static inline void multiply_panels(const typename Sums::Weight* weights, const Operand& of, int first, Part mine,
                                   Begin begin, End end) {
    const auto* x = Sums::values(*of.x);
    int panel[Panels];
    Sums sums[Panels];
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) {
        panel[p] = panel_of_part(first + p, mine);
        begin(panel[p], sums[p]);
    }
    // The first shell's columns start at 0, since every panel has them in its own shell.
    for (int k = panel[0] / kPanelsOfShell, left = 0; left < of.end; left = ++k * kShell) {
        const int from = greater(of.begin, left), to = lesser(of.end, (k + 1) * kShell);
        const typename Sums::Weight* w[Panels];
#pragma GCC unroll 8
        for (int p = 0; p < Panels; ++p) {
            const int own = panel[p] / kPanelsOfShell, column = k > own ? left : 0;
            w[p] = weights + panel_start(greater(own, k), panel[p], Gates) + (from - column) * Gates * kPanel;
        }
        VCDEPLOY_UNROLL_COLUMNS
        for (int j = from; j < to; j += Sums::kColumns) {
            const auto value = Sums::spread(x + j);
#pragma GCC unroll 8
            for (int p = 0; p < Panels; ++p) sums[p].add(w[p] + (j - from) * Gates * kPanel, value);
        }
    }
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) end(panel[p], sums[p]);
}

// How many panels of so many registers of sums are multiplied at once, until they have `enough` sums.
constexpr int panels_at_once(int registers, int enough) {
    int panels = 1;
    while (registers * panels < enough && registers * panels * 2 <= kPanelRegisters) panels *= 2;
    return panels;
}

// Multiplies `size` panels, up to Most.
template <class Sums, int Gates, int Most, class... Rest>
static inline void multiply_some(int size, Rest... rest) {
    if constexpr (Most > 0) {
        if (size == Most) return multiply_panels<Sums, Gates, Most>(rest...);
        multiply_some<Sums, Gates, Most - 1>(size, rest...);
    }
}

// Multiplies for one sequence: the panels of a part, in groups of similar size.
template <class Sums, int Gates, class Begin, class End>
static inline void multiply_alone(const void* weights, const Operand& of, Part mine, Begin begin, End end) {
    constexpr int kMost = panels_at_once(Sums::kSums, Sums::kEnough);
    const auto* w = static_cast<const typename Sums::Weight*>(weights);
    const int count = panels_of_part(of.active, mine);
    for (int first = 0, groups = (count + kMost - 1) / kMost; groups > 0; --groups) {
        const int size = (count - first + groups - 1) / groups;
        multiply_some<Sums, Gates, kMost>(size, w, of, first, mine, begin, end);
        first += size;
    }
}

// Splits `count` items into groups of Size and, at the end, of smaller powers of two: work(size, first item). The size
// is a compile-time constant.
template <int Size, class Work>
static inline void in_groups(int first, int count, Work work) {
    for (; first + Size <= count; first += Size) work(std::integral_constant<int, Size>{}, first);
    if constexpr (Size > 1) in_groups<Size / 2>(first, count, work);
}

// Calls work(weights, first, last) for the stretches of columns [from, to) of a panel, each contiguous in memory.
template <int Gates, class Weight, class Work>
static inline void each_stretch(const Weight* weights, int panel, int from, int to, Work work) {
    const int own = panel / kPanelsOfShell;
    while (from < to) {
        const int k = greater(own, from / kShell), left = k > own ? k * kShell : 0, last = lesser(to, (k + 1) * kShell);
        work(weights + panel_start(k, panel, Gates) + (from - left) * Gates * kPanel, from, last);
        from = last;
    }
}

// Adds the columns of a panel, from `from` on, to the sums of the first `live` sequences: first those that all need, then
// those of one sequence less.
template <class Sums, int Gates, class Live, int Size>
static inline void add_columns_of(Live live, const typename Sums::Weight* w, const Operand* of, int panel, int from,
                                  Sums (&sums)[Size]) {
    const int to = rounded_up(of[live - 1].end, Sums::kColumns);
    each_stretch<Gates>(w, panel, from, to, [&](const auto* at, int first, int last) {
        VCDEPLOY_UNROLL_COLUMNS
        for (int j = first; j < last; j += Sums::kColumns)
            Sums::template add_to_all<live>(sums, at + (j - first) * Gates * kPanel, of, j);
    });
    if constexpr (live > 1)
        add_columns_of<Sums, Gates>(std::integral_constant<int, live - 1>{}, w, of, panel, greater(from, to), sums);
}

// Multiplies for several sequences, sorted by `active`, each from column 0 to its last active one. A panel's weights stay
// in a near cache while groups of sequences are multiplied by them, with all sums of a group in registers.
// begin(sequence, panel, sums) sets the initial sums, end(sequence, panel, sums) takes the last ones.
template <class Sums, int Gates, class Begin, class End>
static inline void multiply_together(const void* weights, const Operand* of, int count, Part mine, Begin begin,
                                     End end) {
    const auto* w = static_cast<const typename Sums::Weight*>(weights);
    const auto group = [&](auto size, const Operand* one, int panel) {
        constexpr int kSize = size;
        Sums sums[kSize];
#pragma GCC unroll 8
        for (int n = 0; n < kSize; ++n) begin(one[n], panel, sums[n]);
        add_columns_of<Sums, Gates>(std::integral_constant<int, kSize>{}, w, one, panel, 0, sums);
#pragma GCC unroll 8
        for (int n = 0; n < kSize; ++n) end(one[n], panel, sums[n]);
    };
    each_panel(of->active, mine, [&](int panel) {
        int some = count;  // sequences whose active rows reach this panel
        while (of[some - 1].active <= panel * kPanel) --some;
        in_groups<Sums::kTogether>(0, some, [&](auto size, int first) { group(size, of + first, panel); });
    });
}

// Multiplies for one or more sequences, sorted by `active`, each from column 0 to its last active one, through the weights
// in memory order: for those that don't fit a near cache. begin(sequence, panel, sums) sets the sums so far,
// end(sequence, panel, sums) takes those of more columns.
template <class Sums, int Gates, class Begin, class End>
static inline void multiply_in_order(const void* weights, const Operand* of, int count, Part mine, Begin begin,
                                     End end) {
    const auto block = [&](int panel, int shell, int column, int to) {
        const auto* w = static_cast<const typename Sums::Weight*>(weights) + panel_start(shell, panel, Gates);
        const auto multiply = [&](auto size, int first, int last) {
            Sums sums[size];
#pragma GCC unroll 8
            for (int n = 0; n < size; ++n) begin(of[first + n], panel, sums[n]);
            VCDEPLOY_UNROLL_COLUMNS
            for (int j = column; j < last; j += Sums::kColumns)
#pragma GCC unroll 8
                for (int n = 0; n < size; ++n)
                    sums[n].add(w + (j - column) * Gates * kPanel, Sums::spread(Sums::values(*of[first + n].x) + j));
#pragma GCC unroll 8
            for (int n = 0; n < size; ++n) end(of[first + n], panel, sums[n]);
        };
        int whole = 0;  // sequences that need all of these columns
        while (whole < count && of[whole].end >= to) ++whole;
        in_groups<Sums::kTogether>(0, whole, [&](auto size, int n) { multiply(size, n, to); });
        for (int n = whole; n < count && of[n].end > greater(column, panel * kPanel); ++n)
            multiply(std::integral_constant<int, 1>{}, n, of[n].end);
    };
    const int most = of->active, panels = panels_of(most);
    for (int k = 0; k * kShell < most; ++k) {
        const int left = k * kShell, right = lesser(most, left + kShell), above = k * kPanelsOfShell;
        if (k % mine.members == mine.member)
            for (int panel = above; panel < lesser(above + kPanelsOfShell, panels); ++panel) block(panel, k, 0, right);
        each_panel(left, mine, [&](int panel) { block(panel, k, left, right); });
    }
}

// sums += W times x for every product.
template <int Gates, class Weight>
static void multiply_floats(const void* weights, const Operand* of, int count, Part mine, int stride) {
    using Sums = Floats<Weight, Gates>;
    const auto begin = [=](const Operand& o, int panel, Sums& sums) {
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) sums.gate[g] = load(o.sums + panel * stride + g * kPanel);
    };
    const auto end = [=](const Operand& o, int panel, const Sums& sums) {
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) store(o.sums + panel * stride + g * kPanel, sums.gate[g]);
    };
    if (count > 1) {
        const std::size_t corner = std::size_t(of->active) * of->active * Gates * sizeof(Weight);
        if (corner > kNearCache) return multiply_in_order<Sums, Gates>(weights, of, count, mine, begin, end);
        return multiply_together<Sums, Gates>(weights, of, count, mine, begin, end);
    }
    multiply_alone<Sums, Gates>(
        weights, *of, mine, [=](int panel, Sums& sums) { begin(*of, panel, sums); },
        [=](int panel, const Sums& sums) { end(*of, panel, sums); });
}

// The products in integers, then scaled to floats by the row's scale times the vector's unit. Each operation is rounded
// separately, so the result has the same bits everywhere. known: sums [panel][Gates][16] to add to those of the only
// product, or null. add: add to sums instead of setting them.
template <class Quantized, int Gates>
static void multiply_integers(const PackedWeights& W, const Operand* of, int count, Part mine,
                              const std::int32_t* known, bool add, int stride) {
    using Sums = Integers<Quantized, Gates>;
    const auto start = [](const Operand& o) { return Sums::start_of(*o.x, o.begin, o.end); };
    const auto scale = [&](const Operand& o, int panel, int gate, Counts counts) {
        float* sums = o.sums + panel * stride + gate * kPanel;
        const Rows value = load(W.scales + (panel * Gates + gate) * kPanel) * all(o.x->unit);
        const Rows product = whole_to_float(counts) * value;
        store(sums, add ? product + load(sums) : product);
    };
    // The last sums of a product's panel.
    const auto finish = [=](const Operand& o, int panel, const Sums& sums, Counts first) {
#pragma GCC unroll 8
        for (int g = 0; g < Gates; ++g) {
            const Counts product = sums.product(g, first);
            scale(o, panel, g, known ? load(known + (panel * Gates + g) * kPanel) + product : product);
        }
    };
    const auto clear_sums = [](const Operand&, int, Sums& sums) { clear(sums.counts); };
    if (count > 1) {
        Counts first[kMostSteps];
        for (int n = 0; n < count; ++n) first[n] = start(of[n]);
        return multiply_together<Sums, Gates>(
            W.weights, of, count, mine, clear_sums,
            [=](const Operand& o, int panel, const Sums& sums) { finish(o, panel, sums, first[&o - of]); });
    }
    const Counts first = start(*of);
    const bool whole = of->begin == 0 && of->end == of->active && !known;
    if (!whole || of->active <= kPanelOrder)
        return multiply_alone<Sums, Gates>(
            W.weights, *of, mine, [=](int panel, Sums& sums) { clear_sums(*of, panel, sums); },
            [=](int panel, const Sums& sums) { finish(*of, panel, sums, first); });
    const auto at = [=](int panel, int gate) { return of->counts + panel * stride + gate * kPanel; };
    Sums none;
    clear_sums(*of, 0, none);
    each_panel(of->active, mine, [&](int panel) {
        for (int g = 0; g < Gates; ++g) store(at(panel, g), none.product(g, first));
    });
    multiply_in_order<Sums, Gates>(W.weights, of, 1, mine, clear_sums,
                                   [=](const Operand&, int panel, const Sums& sums) {
#pragma GCC unroll 8
                                       for (int g = 0; g < Gates; ++g)
                                           store(at(panel, g), load(at(panel, g)) + sums.product(g, start_of(0)));
                                   });
    each_panel(of->active, mine, [&](int panel) {
        for (int g = 0; g < Gates; ++g) scale(*of, panel, g, load(at(panel, g)));
    });
}

template <int Gates>
static inline void multiply_quantized(const PackedWeights& W, const Operand* of, int count, Part mine,
                                      const std::int32_t* known, bool add, int stride) {
    if (has_byte_levels(W.precision))
        multiply_integers<W8a8, Gates>(W, of, count, mine, known, add, stride);
    else
        multiply_integers<Int8, Gates>(W, of, count, mine, known, add, stride);
}

// sums [panel][stride] += W times x for every product, of `Gates` gates.
template <int Gates>
static inline void multiply(const PackedWeights& W, const Operand* of, int count, Part mine, int stride) {
    switch (W.precision) {
        case Precision::f32: multiply_floats<Gates, float>(W.weights, of, count, mine, stride); break;
#ifndef __EMSCRIPTEN__
        case Precision::f16: multiply_floats<Gates, Half>(W.weights, of, count, mine, stride); break;
        case Precision::bf16: multiply_floats<Gates, Bfloat16>(W.weights, of, count, mine, stride); break;
#else
        default: __builtin_trap();  // plugins/web widens f16 and bf16
#endif
        case Precision::int8:
        case Precision::w8a8: multiply_quantized<Gates>(W, of, count, mine, nullptr, true, stride); break;
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
        of[n] = {&s.input, s.active, s.input_begin / kColumnGroup * kColumnGroup, s.input_end, s.sums, s.counts};
        if (is_quantized(V.precision)) continue;
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
        if (is_quantized(V.precision))
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
        const Rows x = all(call.h.value[j]);
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

// The same in exact integers.
template <class Quantized, int Panels>
static inline void output_counts(const std::uint8_t* w, std::size_t size, const OutputCall& call, Columns of,
                                 const std::int32_t* after, std::int32_t* S) {
    using Sums = Integers<Quantized, 1>;
    Sums sums[Panels];
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) clear(sums[p].counts);
    for (int j = of.begin; j < of.end; j += Sums::kColumns) {
        const auto x = Sums::spread(Sums::values(call.h) + j);
#pragma GCC unroll 8
        for (int p = 0; p < Panels; ++p) sums[p].add(w + p * size + j * kPanel, x);
    }
    const Counts start = Sums::start_of(call.h, of.begin, of.end);
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) store(S + p * kPanel, load(after + p * kPanel) + sums[p].product(0, start));
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
        for (int b = kept_blocks(changed) - 1; b >= 0; --b) {
            const Columns of{b * kKeptBlock, lesser((b + 1) * kKeptBlock, calls.dim)};
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

template <class Quantized>
static void output_integers(const PackedWeights& W, const OutputCalls& calls, Part mine) {
    const std::size_t size = static_cast<std::size_t>(rounded_up(calls.dim, kColumnGroup)) * kPanel;
    const auto* w = static_cast<const std::uint8_t*>(W.weights);
    walk_output(
        calls, mine,
        [=](auto panels, int panel, const OutputCall& call, Columns of, std::size_t at, std::size_t after) {
            output_counts<Quantized, panels>(w + panel * size, size, call, of, call.counts + after, call.counts + at);
        },
        [&](int at, const OutputCall& call) {
            const Rows value = load(W.scales + at) * all(call.h.unit);
            store(call.logits + at, whole_to_float(load(call.counts + at)) * value + load(calls.bias + at));
        });
}

static void output(const PackedWeights& W, const OutputCalls& calls, Part mine) {
    switch (W.precision) {
        case Precision::f32: output_floats<float>(W, calls, mine); break;
#ifndef __EMSCRIPTEN__
        case Precision::f16: output_floats<Half>(W, calls, mine); break;
        case Precision::bf16: output_floats<Bfloat16>(W, calls, mine); break;
#else
        default: __builtin_trap();
#endif
        case Precision::int8: output_integers<Int8>(W, calls, mine); break;
        case Precision::w8a8: output_integers<W8a8>(W, calls, mine); break;
    }
}

}  // namespace vcdeploy::VCDEPLOY_ISA
