// The rows of a VCRNN step: h' = e ⊙ tanh(U hbar + V xbar) + (1 - e) ⊙ h (docs/design.md, section 1).
//
// Included by kernels.cpp after product.h and activations.h.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

static void vcrnn(const Step& s, Part mine) {
    multiply_input<1>(s, mine);
    multiply<1>(s.U, s.hbar, s.active, 0, s.active, mine, s.sums, kPanel, s.counts);
    in_arithmetic_of(s.U.precision, [&](auto arithmetic) {
        using A = decltype(arithmetic);
        for (int panel = mine.member; panel < panels_of(s.active); panel += mine.members) {
            const int at = panel * kPanel;
            const Rows fresh = A::tanh(load(s.sums + at));
            store(s.h + at, blend<A>(load(s.e + at), fresh, load(s.h + at)));
        }
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
