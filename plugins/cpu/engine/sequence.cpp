// Runs one sequence at a time: each has its own active dimensions, and its state stays in the cache.
#include "engine/sequence.h"

#include <algorithm>

#include "system/denormals.h"

namespace vcdeploy {

void run_sequences(const Layer& layer, Stepper& stepper, const SequenceCall& call) {
    const FlushDenormals flush(layer.precision != Precision::int8);
    const std::size_t D = layer.dim, B = call.B;
    const bool has_cell = spec_of(layer.unit).has_cell();
    Buffer<float> h(stepper.padded()), c(has_cell ? stepper.padded() : 0);
    for (std::size_t n = 0; n < B; ++n) {
        std::copy_n(call.H0 + n * D, D, h.data());
        if (has_cell) std::copy_n(call.C0 + n * D, D, c.data());
        for (int t = 0; t < call.T; ++t) {
            const std::size_t at = t * B + n;
            const float* given_m = call.m ? call.m + at : nullptr;
            call.M[at] = stepper.step(layer, {call.X + at * D}, given_m, h.data(), c.data());
            std::copy_n(h.data(), D, call.Y + at * D);
        }
        std::copy_n(h.data(), D, call.H + n * D);
        if (has_cell) std::copy_n(c.data(), D, call.C + n * D);
    }
}

}  // namespace vcdeploy
