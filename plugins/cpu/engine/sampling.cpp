// Inverse transform sampling over the symbols, most likely first.
#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace vcdeploy {

Sampling::Sampling(double temperature, int top_k, double top_p) : temperature(temperature), top_k(top_k), top_p(top_p) {
    if (!(temperature >= 0) || top_k < 0 || !(top_p > 0 && top_p <= 1))
        throw std::invalid_argument("temperature must be 0 or more (" + std::to_string(temperature) +
                                    "), top_k 0 or more (" + std::to_string(top_k) + "), top_p above 0 up to 1 (" +
                                    std::to_string(top_p) + ")");
}

Sampler::Sampler(const Sampling& sampling, int vocab) : sampling_(sampling), candidates_(vocab) {}

int Sampler::choose(const float* logits, double uniform) {
    const int vocab = static_cast<int>(candidates_.size());
    for (int i = 0; i < vocab; ++i)
        if (!std::isfinite(logits[i]))
            throw std::domain_error("a logit is " + std::to_string(logits[i]) +
                                    ", so no symbol can be sampled: the initial state is not finite");
    const float* likeliest = std::max_element(logits, logits + vocab);
    if (sampling_.temperature == 0) return static_cast<int>(likeliest - logits);

    const double highest = *likeliest / sampling_.temperature;
    if (!std::isfinite(highest))
        throw std::domain_error("a temperature of " + std::to_string(sampling_.temperature) +
                                " is too small to divide by; use 0 for the most likely symbol");
    double sum = 0;
    for (int i = 0; i < vocab; ++i) {
        candidates_[i] = {std::exp(logits[i] / sampling_.temperature - highest), i};
        sum += candidates_[i].p;
    }
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.p > b.p || (a.p == b.p && a.symbol < b.symbol); });

    // Two passes over the candidates (top-k, then the smallest set that reaches top_p): first their sum, then the
    // sample.
    const int most = sampling_.top_k ? std::min(sampling_.top_k, vocab) : vocab;
    const auto cumulate = [&](auto&& stop) {
        double all = 0, kept = 0;
        for (int i = 0; i < most; ++i) {
            const double p = candidates_[i].p / sum;
            all += p;
            if (!(all - p < sampling_.top_p)) continue;
            kept += p;
            if (stop(kept, i)) break;
        }
        return kept;
    };
    int last = 0;
    const double kept = cumulate([&](double, int i) {
        last = i;
        return false;
    });
    int chosen = last;  // if rounding puts the target past the end
    cumulate([&](double upto, int i) {
        chosen = upto > uniform * kept ? i : last;
        return upto > uniform * kept;
    });
    return candidates_[chosen].symbol;
}

double log_probability(const float* logits, int vocab, int symbol) {
    const double highest = *std::max_element(logits, logits + vocab);
    double sum = 0;
    for (int i = 0; i < vocab; ++i) sum += std::exp(logits[i] - highest);
    return logits[symbol] - highest - std::log(sum);
}

}  // namespace vcdeploy
