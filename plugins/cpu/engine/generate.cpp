// The generation loop: feed the newest token, sample the next one, repeat.
#include <algorithm>
#include <vector>

#include "engine/model.h"

namespace vcdeploy {

void Model::generate(const std::int64_t* prime, int n, const double* uniforms, int length, const Sampling& sampling,
                     const float* state, const Generated& out, const Pause& pause) {
    Sampler sampler(sampling, vocab_, kernels());
    std::copy_n(state, static_cast<std::size_t>(state_rows()) * dim_, out.state);
    std::vector<float> prime_m(static_cast<std::size_t>(chunk_) * layers());  // not returned
    for (int from = 0; from < n - 1; from += chunk_)
        alone(pause, out.state, dim_,
              [&] { advance(prime + from, 1, std::min(chunk_, n - 1 - from), prime_m.data(), layers()); });
    for (int from = 0; from < length; from += chunk_)
        alone(pause, out.state, dim_, [&] {
            for (int t = from; t < std::min(from + chunk_, length); ++t) {
                const std::int64_t* newest = t == 0 ? prime + n - 1 : out.tokens + t - 1;
                advance(newest, 1, 1, out.m + static_cast<std::size_t>(t) * layers(), layers());
                output_.run(rows_.data(), changed_[0], kernels(), stepper_.team());
                const Sampler::Drawn drawn = sampler.draw(output_.logits(), uniforms[t]);
                out.tokens[t] = drawn.symbol;
                out.log_probabilities[t] = drawn.log_probability;
            }
        });
}

}  // namespace vcdeploy
