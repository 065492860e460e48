// The rows of a VCGRU step, in two phases, since U_h reads r ⊙ hbar of all rows:
//
//     r = sigmoid(U_r hbar + V_r xbar),  z = e ⊙ sigmoid(U_z hbar + V_z xbar),  r ⊙ hbar
//     g = tanh(U_h (r ⊙ hbar) + V_h xbar),  h' = z ⊙ g + (1 - z) ⊙ h
//
// Included by kernels.cpp after product.h and activations.h. sums: [panel][r, z, h][16].
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

static void vcgru_gates(const Step& s, Part mine) {
    multiply_input<3>(s, mine);
    multiply<2>(s.U, s.hbar, s.active, 0, s.active, mine, s.sums, 3 * kPanel, s.counts);
    in_arithmetic_of(s.U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        for (int panel = mine.member; panel < panels_of(s.active); panel += mine.members) {
            const int at = panel * kPanel;
            float* sums = s.sums + 3 * at;
            const Rows reset = A::sigmoid(load(sums)) * load(s.hbar.value + at);
            // |r ⊙ hbar| is at most |hbar|, so hbar's unit works here too and threads need not share a maximum.
            if (s.U_reset.precision == Precision::int8)
                store_whole(s.reset.level + at, reset * all(s.hbar.levels_of_one));
            else
                store(s.reset_value + at, reset);
            store(sums + kPanel, load(s.e + at) * A::sigmoid(load(sums + kPanel)));
        }
    });
}

static void vcgru_update(const Step& s, Part mine) {
    multiply<1>(s.U_reset, s.reset, s.active, 0, s.active, mine, s.sums + 2 * kPanel, 3 * kPanel, s.counts);
    in_arithmetic_of(s.U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        for (int panel = mine.member; panel < panels_of(s.active); panel += mine.members) {
            const int at = panel * kPanel;
            const float* sums = s.sums + 3 * at;
            const Rows g = A::tanh(load(sums + 2 * kPanel));
            store(s.h + at, blend<A>(load(sums + kPanel), g, load(s.h + at)));
        }
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
