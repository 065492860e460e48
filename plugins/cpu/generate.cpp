// The whole generate loop in one call: embed, layers, output layer, sample, and again.
#include <algorithm>

#include "denormals.h"
#include "model.h"

namespace vcdeploy {

void Model::generate(const std::int64_t* prime, int n, const double* uniforms, int length, const Sampling& sampling,
                     const float* state, std::int64_t* out, float* state_out, float* compute) {
    const std::lock_guard<std::mutex> alone(busy_);
    const FlushDenormals flush(layers_[0].precision != Precision::int8);
    Sampler sampler(sampling, vocab_);
    read_state(state, dim_);
    int last = 0;  // the place in rows_ of the newest state
    for (int from = 0; from < n; from += kChunk) {
        const int count = std::min(kChunk, n - from);
        advance(prime + from, 1, count, compute, layers());
        compute += static_cast<std::size_t>(count) * layers();
        last = count - 1;
    }
    for (int t = 0; t < length; ++t) {
        read_out(last, 1);
        out[t] = sampler.choose(logits_.data(), uniforms[t]);
        if (t + 1 == length) break;
        advance(out + t, 1, 1, compute, layers());
        compute += layers();
        last = 0;
    }
    write_state(state_out, dim_);
}

}  // namespace vcdeploy
