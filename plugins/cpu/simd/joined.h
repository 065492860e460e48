// Partial results of a vectorized loop, joined in an order that is the same on every instruction set.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

// Joins the first half of `part` with the second, element by element, until one is left. Every width is a constant, so
// that the compiler keeps the parts in registers.
template <int kParts, class T, class Join>
static inline T joined(T* part, Join join) {
    if constexpr (kParts == 1) {
        return part[0];
    } else {
        for (int i = 0; i < kParts / 2; ++i) part[i] = join(part[i], part[i + kParts / 2]);
        return joined<kParts / 2>(part, join);
    }
}

template <int kParts, class T>
static inline T added_up(T* part) {
    return joined<kParts>(part, [](T a, T b) { return a + b; });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
