// The biases of a dense unit. Included by kernels.cpp after product.h.
#pragma once

namespace vcdeploy::VCDEPLOY_ISA {

// sums [panel][Gates][16] += the biases, if there are any.
template <int Gates>
static inline void add_bias(Steps steps, Part mine) {
    if (!steps[0].bias) return;
    each_panel(steps, mine, [](const Step& s, int at) {
        for (int i = Gates * at; i < Gates * (at + kPanel); i += kPanel)
            store(s.sums + i, load(s.sums + i) + load(s.bias + i));
    });
}

}  // namespace vcdeploy::VCDEPLOY_ISA
