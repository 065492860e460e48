// The rows of a VCLSTM step: gates i, f, g, o of U hbar + V xbar, then
//
//     c' = e ⊙ (f ⊙ c + i ⊙ g) + (1 - e) ⊙ c,  h' = e ⊙ (o ⊙ tanh(c')) + (1 - e) ⊙ h
//
// Included by kernels.cpp after product.h, activations.h and bias.h. sums: [panel][i, f, g, o][16].
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

static void vclstm(Steps steps, Part mine) {
    multiply_input<4>(steps, mine);
    add_bias<4>(steps, mine);
    multiply<4>(steps[0].U, steps, &Step::hbar, mine, 0, 4 * kPanel);
    in_arithmetic_of(steps[0].U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        each_panel(steps, mine, [](const Step& s, int at) {
            const float* sums = s.sums + 4 * at;
            const Rows i = A::sigmoid(load(sums)), f = A::sigmoid(load(sums + kPanel));
            const Rows g = A::tanh(load(sums + 2 * kPanel)), o = A::sigmoid(load(sums + 3 * kPanel));
            const Rows e = load(s.e + at), old = load(s.c + at);
            const Rows c = blend<A>(e, A::multiply_add(f, old, i * g), old);
            store(s.c + at, c);
            store(s.h + at, blend<A>(e, o * A::tanh(c), load(s.h + at)));
        });
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
