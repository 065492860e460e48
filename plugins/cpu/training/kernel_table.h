// The functions compiled once per instruction set: the product and the units' equations.
#pragma once

#include <cstddef>

#include "kernels/table.h"

namespace vcdeploy::training {

constexpr int kGroup = 6;  // tokens per tile

// One token of a product: y (+)= W x, up to column `to`. In a list, `to` never increases; x is zero from its own `to`
// up to the largest among the five tokens before it.
template <class T>
struct Operand {
    const T* x;
    T* y;
    int to;
};

// The rows of a token. Gate k of `gates` is at k * plane, of `d` at k * d_plane. Pointers a function does not use may
// be null.
template <class T>
struct Rows {
    const T* h;  // before the step
    const T* e;
    T* gates;
    std::ptrdiff_t plane;
    T* hbar;
    T* reset;  // VCGRU: r ⊙ hbar
    T* c;      // VCLSTM: the cell before the step; update() changes it in place
    T* next;   // h after the step

    T* dh;
    T* dc;
    T* d;  // gradient of the gates' pre-activations
    std::ptrdiff_t d_plane;
    T* dbar;  // gradient of hbar; in VCGRU first of r ⊙ hbar
    T slope;  // de/dm is slope * e * (1 - e)
};

// f(rows, begin, end) for rows begin ≤ i < end of a token.
template <class T>
using RowsOf = void (*)(const Rows<T>&, int begin, int end);

template <class T>
struct UnitTable {
    RowsOf<T> activate;        // pre-activations -> gates; VCGRU: r and z, and r ⊙ hbar
    RowsOf<T> activate_reset;  // VCGRU: the gate that reads r ⊙ hbar
    RowsOf<T> update;          // writes next and c
    RowsOf<T> update_cell;     // VCLSTM: updates c only
    // dh -> d of the gates it reaches directly; leaves in dh and dc what bypasses the gates. Returns the direct part of
    // dm. For rows below `end`.
    T (*backward)(const Rows<T>&, int end);
    RowsOf<T> backward_reset;  // VCGRU: dbar of r ⊙ hbar -> d of r, dbar of hbar
};

template <class T>
struct Table {
    int panel;  // rows per panel

    // Adds to (or sets) y [at, at + panel) of every operand. panel: [column][row of the panel]. next: the panel to
    // prefetch for the following call.
    void (*multiply)(const T* panel, const T* next, const Operand<T>* operands, int count, std::ptrdiff_t x_at,
                     std::ptrdiff_t y_at, bool accumulate);
    // out [rows][columns] (+)= Σ_n d[n][row] inputs[n][column], n below count. d: [n][kGroup], inputs: [n][panel];
    // out has rows `stride` apart; rows up to kGroup and columns up to a panel. Prefetches from `soon` (tile.h).
    void (*multiply_outer)(const T* d, const T* inputs, int count, T* out, std::ptrdiff_t stride, int rows, int columns,
                           bool accumulate, const T* soon, std::ptrdiff_t pace);
    // out = e ⊙ x, or e ⊙ x ⊙ r if r is not null, up to n, in panels `stride` apart; the last panel is zero-padded.
    void (*mask_panels)(const T* e, const T* x, const T* r, int n, T* out, std::ptrdiff_t stride);

    double (*wide_dot)(const T* a, const T* b, int n);  // summed in double, element i in partial sum i mod 16
    T (*slope_dot)(T slope, const T* e, const T* a, const T* b, int n);  // Σ a b e', e' = slope e (1 - e)
    void (*scale)(const T* e, const T* x, T* out, int n);                // out = e ⊙ x
    void (*add_scaled)(T factor, const T* x, T* out, int n);             // out += factor * x
    void (*add_product)(const T* e, const T* x, T* out, int n);          // out += e ⊙ x

    UnitTable<T> units[kUnitCount];  // by Unit
};

struct Tables {
    const char* name;
    Table<float> single;
    Table<double> twice;
};

// One table per instruction set, each from its own compilation of training/kernels.cpp.
namespace portable {
extern const Tables kTables;
}
#ifdef VCDEPLOY_X86
namespace avx2 {
extern const Tables kTables;
}
namespace avx512 {
extern const Tables kTables;
}
#endif

}  // namespace vcdeploy::training
