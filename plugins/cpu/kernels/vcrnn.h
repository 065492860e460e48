// The rows of a VCRNN step: h' = e ⊙ tanh(U hbar + V xbar) + (1 - e) ⊙ h (docs/design.md, section 1).
//
// Included by kernels.cpp after product.h, activations.h and bias.h.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

static void vcrnn(Steps steps, Part mine) {
    multiply_input<1>(steps, mine);
    add_bias<1>(steps, mine);
    multiply<1>(steps[0].U, steps, &Step::hbar, mine, 0, kPanel);
    in_arithmetic_of(steps[0].U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        each_panel(steps, mine, [](const Step& s, int at) {
            const Rows fresh = A::tanh(load(s.sums + at));
            store(s.h + at, blend<A>(load(s.e + at), fresh, load(s.h + at)));
        });
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
