// The scheduler of int8 and w8a8: m and the mask from the logit, in the Plain arithmetic that every runtime can reproduce.
//
// Included by kernels.cpp after activations.h.
#pragma once

#include <bit>

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
    // Further from the centre than this, the mask is exactly 0 or 1; includes two spare dimensions.
    const double end = 2 * double{kTanhEnd} / softening.sharpness;
    const double reach = (softening.reach < end ? softening.reach : end) + 2;
    const auto within = [dim](double place) { return place < 0 ? 0 : place > dim ? dim : static_cast<int>(place); };
    const int first = within(centre - reach) / kPanel * kPanel, last = within(centre + reach);
    for (int i = 0; i < first; i += kPanel) store(e + i, all(1));
    Extent extent{first, first};
    for (int i = first; i < rounded_up(last, kShell); i += kPanel) {
        const Rows away = all(centre) - numbers_from(static_cast<float>(i + 1));
        Rows soft = thresholded(Plain::sigmoid(all(softening.sharpness) * away), softening.epsilon, upper);
        if (i + kPanel > dim) {
            store(e + i, soft);
            for (int k = greater(i, dim); k < i + kPanel; ++k) e[k] = 0;
            soft = load(e + i);
        }
        store(e + i, soft);
        if (const std::uint32_t some = rows_above(soft, 0)) extent.active = i + 32 - std::countl_zero(some);
        if (extent.ones == i) extent.ones += std::countr_one(rows_above(soft, upper));
    }
    return extent;
}

}  // namespace vcdeploy::VCDEPLOY_ISA
