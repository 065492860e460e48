// The rows of a VCGRU step, in two phases, since U_h reads r ⊙ hbar of all rows:
//
//     r = sigmoid(U_r hbar + V_r xbar),  z = e ⊙ sigmoid(U_z hbar + V_z xbar),  r ⊙ hbar
//     g = tanh(U_h (r ⊙ hbar) + V_h xbar),  h' = z ⊙ g + (1 - z) ⊙ h
//
// Included by kernels.cpp after product.h, activations.h and bias.h. sums: [panel][r, z, h][16].
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

static void vcgru_gates(Steps steps, Part mine) {
    const PackedWeights &U = steps[0].U, &U_reset = steps[0].U_reset;
    multiply_input<3>(steps, mine);
    add_bias<3>(steps, mine);
    multiply<2>(U, steps, &Step::hbar, mine, 0, 3 * kPanel);
    in_arithmetic_of(U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        each_panel(steps, mine, [&](const Step& s, int at) {
            float* sums = s.sums + 3 * at;
            const Rows reset = A::sigmoid(load(sums)) * load(s.hbar.value + at);
            // |r ⊙ hbar| is at most |hbar|, so hbar's unit works here too and threads need not share a maximum.
            if (is_quantized(U_reset.precision))
                store_levels(s.reset, at, reset * all(s.hbar.levels_of_one));
            else
                store(s.reset_value + at, reset);
            store(sums + kPanel, load(s.e + at) * A::sigmoid(load(sums + kPanel)));
        });
    });
}

static void vcgru_update(Steps steps, Part mine) {
    multiply<1>(steps[0].U_reset, steps, &Step::reset, mine, 2 * kPanel, 3 * kPanel);
    in_arithmetic_of(steps[0].U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        each_panel(steps, mine, [](const Step& s, int at) {
            const float* sums = s.sums + 3 * at;
            const Rows g = A::tanh(load(sums + 2 * kPanel));
            store(s.h + at, blend<A>(load(sums + kPanel), g, load(s.h + at)));
        });
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
