// The int8 scheduler: m and the mask from the logit, in the Plain arithmetic that every runtime can reproduce.
//
// Included by kernels.cpp after activations.h.
#pragma once

#include <cmath>

#include "kernels/table.h"
#include "weights/layout.h"

namespace vcdeploy::VCDEPLOY_ISA {

static float update_fraction(float logit) {
    alignas(64) float rows[kPanel];
    store(rows, Plain::sigmoid(all(logit)));
    return rows[0];
}

// e_i = Thres(sigmoid(sharpness * (m*D - i))), each operation in float.
static Extent soften(float m, int dim, const Softening& softening, float* e) {
    const float centre = m * static_cast<float>(dim), upper = 1.0f - softening.epsilon;
    // Further from the centre than this, the sigmoid is exactly 0 or 1; includes two spare dimensions.
    const double reach = 2 * double{kTanhEnd} / softening.sharpness + 2;
    const auto within = [dim](double place) { return place < 0 ? 0 : place > dim ? dim : static_cast<int>(place); };
    const int first = within(centre - reach) / kPanel * kPanel, last = within(centre + reach);
    for (int i = 0; i < first; ++i) e[i] = 1;
    alignas(64) float numbers[kPanel];
    for (int i = first; i < last; i += kPanel) {
        for (int k = 0; k < kPanel; ++k) numbers[k] = static_cast<float>(i + k + 1);
        const Rows soft = Plain::sigmoid(all(softening.sharpness) * (all(centre) - load(numbers)));
        store(e + i, soft);
        for (int k = 0; k < kPanel; ++k) {
            float& each = e[i + k];
            each = each > upper ? 1.0f : each < softening.epsilon ? 0.0f : each;
        }
    }
    int ones = first, active = last;
    while (ones < last && e[ones] == 1) ++ones;
    while (active > ones && e[active - 1] == 0) --active;
    for (int i = active; i < rounded_up(last, kShell) || i < rounded_up(active, kShell); ++i) e[i] = 0;
    return {ones, active};
}

}  // namespace vcdeploy::VCDEPLOY_ISA
