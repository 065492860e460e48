// Inverse transform sampling over the symbols from the most likely down. Only as many as a draw needs are sorted: first
// those within a factor of 32 of the most likely, then the next such band.
#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace vcdeploy {
namespace {

constexpr double kBand = 1.0 / 32;
constexpr double kLastBand = 1e-12;  // the rest is one band

}  // namespace

Sampling::Sampling(double temperature, int top_k, double top_p) : temperature(temperature), top_k(top_k), top_p(top_p) {
    if (!(temperature >= 0) || top_k < 0 || !(top_p > 0 && top_p <= 1))
        throw std::invalid_argument("temperature must be 0 or more (" + std::to_string(temperature) +
                                    "), top_k 0 or more (" + std::to_string(top_k) + "), top_p above 0 up to 1 (" +
                                    std::to_string(top_p) + ")");
}

Sampler::Sampler(const Sampling& sampling, int vocab, const Kernels& kernels)
    : sampling_(sampling), kernels_(kernels), p_(vocab), candidates_(vocab) {}

Sampler::Drawn Sampler::draw(const float* logits, double uniform) {
    const int vocab = static_cast<int>(p_.size());
    const float most = kernels_.highest(logits, vocab);
    if (std::isnan(most)) {
        const float* bad = std::find_if(logits, logits + vocab, [](float x) { return !std::isfinite(x); });
        throw std::domain_error("a logit is " + std::to_string(*bad) +
                                ", so there is nothing to choose from: the state it started from is not finite");
    }
    double sum = kernels_.exponentials(logits, vocab, 1, most, p_.data());
    const double log_sum = std::log(sum);
    int symbol;
    if (sampling_.temperature == 0)
        symbol = static_cast<int>(std::find(logits, logits + vocab, most) - logits);
    else {
        if (!std::isfinite(most / sampling_.temperature))
            throw std::domain_error("a temperature of " + std::to_string(sampling_.temperature) +
                                    " is too small to divide by; use 0 for the most likely symbol");
        if (sampling_.temperature != 1)
            sum = kernels_.exponentials(logits, vocab, sampling_.temperature, most, p_.data());
        symbol = choose(sum, uniform);
    }
    return {symbol, static_cast<double>(logits[symbol]) - most - log_sum};
}

// Sorts the next band of symbols behind the others; false if all are sorted.
bool Sampler::sort_more() {
    const int vocab = static_cast<int>(p_.size());
    if (sorted_ == vocab) return false;
    int count = sorted_;
    while (count == sorted_) {
        const double upper = band_;
        band_ = upper * kBand > kLastBand ? upper * kBand : -1;
        for (int i = 0; i < vocab; ++i)
            if (p_[i] < upper && p_[i] >= band_) candidates_[count++] = {p_[i], i};
    }
    // Stable: equally likely symbols stay in their own order.
    std::stable_sort(candidates_.begin() + sorted_, candidates_.begin() + count,
                     [](const Candidate& a, const Candidate& b) { return a.p > b.p; });
    sorted_ = count;
    return true;
}

int Sampler::choose(double sum, double uniform) {
    sorted_ = 0;
    band_ = 2;  // the largest p is 1
    // The smallest set of symbols that reaches top_p, at most top_k: their number, and their sum.
    const int vocab = static_cast<int>(p_.size());
    const int limit = sampling_.top_k ? std::min(sampling_.top_k, vocab) : vocab;
    const bool filtered = limit < vocab || sampling_.top_p < 1;
    int kept = 0;
    double kept_sum = 0;
    if (filtered)
        for (double below = 0; kept < limit && below < sampling_.top_p; below = kept_sum / sum, ++kept) {
            if (kept == sorted_) sort_more();
            kept_sum += candidates_[kept].p;
        }
    else {
        kept = vocab;
        kept_sum = sum;
    }
    double upto = 0;
    for (int i = 0; i < kept; ++i) {
        if (i == sorted_) sort_more();
        upto += candidates_[i].p;
        if (upto > uniform * kept_sum) return candidates_[i].symbol;
    }
    return candidates_[kept - 1].symbol;  // rounding put the place past the end
}

}  // namespace vcdeploy
