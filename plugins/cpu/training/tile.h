// The product: a panel of weights times up to six tokens, all sums in registers. Training spends most of its time here.
//
// Two vectors of rows times six tokens are twelve sums. With two registers for weights and one for an activation they
// fit the sixteen of AVX2. Every weight loaded is used six times.
//
// Included by kernels.cpp after lanes.h.
#pragma once

#include "training/kernel_table.h"

namespace vcdeploy::training::VCDEPLOY_ISA {

template <class T>
constexpr int kPanelRows = 2 * kLanes<T>;

// y[s][0 … panel) (+)= Σ_k w[k][0 … panel) x[s][k * stride], k below n. Prefetches from `soon` on, `pace` elements per
// k.
template <class T, int S>
static inline void tile(const T* w, std::ptrdiff_t n, const T* const* x, std::ptrdiff_t stride, T* const* y,
                        bool accumulate, const T* soon, std::ptrdiff_t pace) {
    constexpr int L = kLanes<T>;
    const T* from[S];
    Vector<T> low[S], high[S];
#pragma GCC unroll 6
    for (int s = 0; s < S; ++s) {
        from[s] = x[s];
        low[s] = high[s] = all(T(0));
        prefetch_to_write(y[s]);
    }
    const auto column = [&](std::ptrdiff_t k) {
        prefetch_to_read(soon);
        const Vector<T> w_low = load(w), w_high = load(w + L);
#pragma GCC unroll 6
        for (int s = 0; s < S; ++s) {
            const Vector<T> one = all(from[s][k * stride]);
            low[s] = low[s] + w_low * one;
            high[s] = high[s] + w_high * one;
        }
        w += 2 * L;
        soon += pace;
    };
    std::ptrdiff_t k = 0;
    for (; k + 2 <= n; k += 2) {  // unrolled by two: loop overhead matters in tiles of fewer than six tokens
        column(k);
        column(k + 1);
    }
    if (k < n) column(k);
#pragma GCC unroll 6
    for (int s = 0; s < S; ++s) {
        if (accumulate) {
            low[s] = load(y[s]) + low[s];
            high[s] = load(y[s] + L) + high[s];
        }
        store(y[s], low[s]);
        store(y[s] + L, high[s]);
    }
}

template <class T>
static void tile_of(int count, const T* w, std::ptrdiff_t n, const T* const* x, std::ptrdiff_t stride, T* const* y,
                    bool accumulate, const T* soon, std::ptrdiff_t pace) {
    switch (count) {
        case 1: return tile<T, 1>(w, n, x, stride, y, accumulate, soon, pace);
        case 2: return tile<T, 2>(w, n, x, stride, y, accumulate, soon, pace);
        case 3: return tile<T, 3>(w, n, x, stride, y, accumulate, soon, pace);
        case 4: return tile<T, 4>(w, n, x, stride, y, accumulate, soon, pace);
        case 5: return tile<T, 5>(w, n, x, stride, y, accumulate, soon, pace);
        default: return tile<T, 6>(w, n, x, stride, y, accumulate, soon, pace);
    }
}

template <class T>
static void multiply(const T* panel, const T* next, const Operand<T>* operands, int count, std::ptrdiff_t x_at,
                     std::ptrdiff_t y_at, bool accumulate) {
    // One block of columns at a time, so that its part of the panel stays in L1 for all groups.
    constexpr int kStretch = 1024 / static_cast<int>(sizeof(T));
    constexpr std::ptrdiff_t P = kPanelRows<T>;
    if (count == 0) return;
    const int groups = (count + kGroup - 1) / kGroup;
    const int widest = operands[0].to;
    // All groups share the prefetch of the next block: the first group alone would be too late.
    const std::ptrdiff_t pace = (P + groups - 1) / groups;
    for (int begin = 0; begin < widest; begin += kStretch) {
        const bool last = begin + kStretch >= widest;
        const T* soon = last ? next : panel + (begin + kStretch) * P;
        // Seven tokens are split into four and three, not six and one: a tile of one stalls on its own sums.
        for (int group = 0, first = 0; group < groups; ++group) {
            const int size = (count - first + groups - group - 1) / (groups - group);
            const Operand<T>* own = operands + first;
            first += size;
            const int columns = own[0].to < begin + kStretch ? own[0].to - begin : kStretch;
            if (columns <= 0) break;
            const T* x[kGroup] = {};
            T* y[kGroup] = {};
            for (int s = 0; s < size; ++s) {
                x[s] = own[s].x + x_at + begin;
                y[s] = own[s].y + y_at;
            }
            tile_of<T>(size, panel + begin * P, columns, x, 1, y, accumulate || begin > 0, soon, pace);
            soon += columns * pace;
        }
    }
}

template <class T>
static void multiply_outer(const T* d, const T* inputs, int count, T* out, std::ptrdiff_t stride, int rows, int columns,
                           bool accumulate, const T* soon, std::ptrdiff_t pace) {
    constexpr int P = kPanelRows<T>;
    const bool whole = columns == P;
    T part[kGroup * P];
    const T* x[kGroup] = {};
    T* y[kGroup] = {};
    for (int s = 0; s < rows; ++s) {
        x[s] = d + s;
        y[s] = whole ? out + s * stride : part + s * P;
    }
    tile_of<T>(rows, inputs, count, x, kGroup, y, whole && accumulate, soon, pace);
    if (whole) return;
    for (int s = 0; s < rows; ++s)
        for (int i = 0; i < columns; ++i) {
            T& place = out[s * stride + i];
            place = accumulate ? place + part[s * P + i] : part[s * P + i];
        }
}

template <class T>
static void mask_panels(const T* e, const T* x, const T* r, int n, T* out, std::ptrdiff_t stride) {
    constexpr int P = kPanelRows<T>;
    int i = 0;
    for (; i + P <= n; i += P, out += stride) {
        for (int k = 0; k < P; ++k) out[k] = r ? e[i + k] * x[i + k] * r[i + k] : e[i + k] * x[i + k];
    }
    if (i == n) return;
    for (int k = 0; k < P; ++k) out[k] = i + k >= n ? T(0) : r ? e[i + k] * x[i + k] * r[i + k] : e[i + k] * x[i + k];
}

}  // namespace vcdeploy::training::VCDEPLOY_ISA
