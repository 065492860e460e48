// The generation loop: feed the newest token, sample the next one, repeat.
#include <algorithm>
#include <vector>

#include "engine/model.h"
#include "system/denormals.h"

namespace vcdeploy {

void Model::generate(const std::int64_t* prime, int n, const double* uniforms, int length, const Sampling& sampling,
                     const float* state, const Generated& out) {
    const std::lock_guard<std::mutex> alone(busy_);
    const FlushDenormals flush(layers_[0].precision != Precision::int8);
    Sampler sampler(sampling, vocab_, kernels());
    read_state(state, dim_);
    output_.reset();
    std::vector<float> prime_m(static_cast<std::size_t>(kChunk) * layers());  // not returned
    for (int from = 0; from < n - 1; from += kChunk)
        advance(prime + from, 1, std::min(kChunk, n - 1 - from), prime_m.data(), layers());
    for (int t = 0; t < length; ++t) {
        const std::int64_t* newest = t == 0 ? prime + n - 1 : out.tokens + t - 1;
        advance(newest, 1, 1, out.m + static_cast<std::size_t>(t) * layers(), layers());
        output_.run(rows_.data(), changed_[0], kernels(), stepper_.team());
        const Sampler::Drawn drawn = sampler.draw(output_.logits(), uniforms[t]);
        out.tokens[t] = drawn.symbol;
        out.log_probabilities[t] = drawn.log_probability;
    }
    write_state(out.state, dim_);
}

}  // namespace vcdeploy
