// Runs the sequences of a batch side by side, so that they share the weights of every step.
#include "engine/sequence.h"

#include <algorithm>
#include <vector>

#include "system/denormals.h"

namespace vcdeploy {

void run_sequences(const Layer& layer, Stepper& stepper, const SequenceCall& call) {
    const FlushDenormals flush(!is_quantized(layer.precision));
    const std::size_t D = layer.dim, B = call.B;
    const bool has_cell = spec_of(layer.unit).has_cell();
    const std::size_t padded = stepper.padded();
    Buffer<float> h(B * padded), c(has_cell ? B * padded : 0);
    std::vector<Stepper::Kept> kept;
    std::vector<Stepper::Sequence> sequences(B);
    kept.reserve(B);
    for (std::size_t n = 0; n < B; ++n) {
        sequences[n].kept = &kept.emplace_back(layer.dim);
        sequences[n].h = std::copy_n(call.H0 + n * D, D, h.data() + n * padded) - D;
        sequences[n].c = has_cell ? std::copy_n(call.C0 + n * D, D, c.data() + n * padded) - D : nullptr;
    }
    for (std::size_t t = 0; t < static_cast<std::size_t>(call.T); ++t) {
        for (std::size_t n = 0; n < B; ++n) {
            const std::size_t at = t * B + n;
            sequences[n].input = {call.X + at * D, layer.dim};
            sequences[n].given_m = call.m ? call.m + at : nullptr;
        }
        stepper.step(layer, sequences.data(), call.B);
        for (std::size_t n = 0; n < B; ++n) {
            const std::size_t at = t * B + n;
            call.M[at] = sequences[n].m;
            std::copy_n(sequences[n].h, D, call.Y + at * D);
        }
    }
    for (std::size_t n = 0; n < B; ++n) {
        std::copy_n(sequences[n].h, D, call.H + n * D);
        if (has_cell) std::copy_n(sequences[n].c, D, call.C + n * D);
    }
}

}  // namespace vcdeploy
