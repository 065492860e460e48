// The rows of a GRU step in PyTorch's form, which resets the product U_n h:
//
//     r, z = sigmoid(U h + V x),  n = tanh(r ⊙ (U_n h) + V_n x),  h' = (1 - z) ⊙ n + z ⊙ h
//
// Included by kernels.cpp after product.h, activations.h and bias.h. sums: [panel][r, z, n][16], without U_n h, which is
// kept apart, [panel][16].
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

static void gru(Steps steps, Part mine) {
    multiply_input<3>(steps, mine);
    add_bias<3>(steps, mine);
    multiply<2>(steps[0].U, steps, &Step::hbar, mine, 0, 3 * kPanel);
    Operand of[kMostSteps];
    for (int n = 0; n < steps.count; ++n) {
        const Step& s = steps[n];
        of[n] = {&s.hbar, s.active, 0, s.active, s.apart, s.apart_counts};
    }
    each_panel(steps, mine,
               [](const Step& s, int at) { store(s.apart + at, s.apart_bias ? load(s.apart_bias + at) : all(0.0f)); });
    multiply<1>(steps[0].U_reset, of, steps.count, mine, kPanel);
    in_arithmetic_of(steps[0].U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        each_panel(steps, mine, [](const Step& s, int at) {
            const float* sums = s.sums + 3 * at;
            const Rows r = A::sigmoid(load(sums)), z = A::sigmoid(load(sums + kPanel));
            const Rows fresh = A::tanh(A::multiply_add(r, load(s.apart + at), load(sums + 2 * kPanel)));
            store(s.h + at, blend<A>(z, load(s.h + at), fresh));
        });
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
