// Inverse transform sampling over the symbols from the most likely down. Only as many as a draw needs are sorted: first
// those within a factor of 32 of the most likely, then the next such band.
#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace vcdeploy {
namespace {

constexpr double kBand = 1.0 / 32;
constexpr double kLastBand = 1e-12;  // the rest is one band

}  // namespace

void Sampling::check() const {
    const auto require = [](bool holds, const char* name, const char* range, double value) {
        if (!holds)
            throw std::invalid_argument(std::string(name) + " must be " + range + ", not " + std::to_string(value));
    };
    require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty", "above 0",
            repetition_penalty);
    require(repetition_window >= 1 && repetition_window <= History::kMost, "repetition_window", "from 1 to 1024",
            repetition_window);
    require(temperature >= 0 && std::isfinite(temperature), "temperature", "0 or more", temperature);
    require(top_k >= 0, "top_k", "0 or more", top_k);
    require(top_p > 0 && top_p <= 1, "top_p", "above 0 up to 1", top_p);
    require(min_p >= 0 && min_p <= 1, "min_p", "from 0 to 1", min_p);
    for (const auto& each : stop)
        require(!each.empty() && each.size() <= History::kMost, "the length of a stop string", "from 1 to 1024",
                static_cast<double>(each.size()));
}

void History::add(std::int64_t token) {
    tokens_[end_] = static_cast<std::int32_t>(token);
    size_ = std::min(size_ + 1, kMost);
    end_ = (end_ + 1) % kMost;
}

std::int64_t History::back(int n) const { return tokens_[(end_ - 1 - n + kMost) % kMost]; }

bool History::ends_with(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t generated) const {
    return std::any_of(sequences.begin(), sequences.end(), [&](const std::vector<std::int64_t>& each) {
        const int length = static_cast<int>(each.size());
        if (length > generated || length > size()) return false;
        for (int n = 0; n < length; ++n)
            if (back(n) != each[length - 1 - n]) return false;
        return true;
    });
}

Sampler::Sampler(int vocab, const Kernels& kernels)
    : vocab_(vocab), kernels_(kernels), penalized_(vocab), selected_(vocab), symbols_(vocab), seen_(vocab), p_(vocab),
      candidates_(vocab) {}

Sampler::Drawn Sampler::draw(const Sampling& sampling, const float* logits, double uniform, const History& history,
                             const std::uint8_t* allowed) {
    const float most = kernels_.highest(logits, vocab_);
    if (std::isnan(most)) {
        const float* bad = std::find_if(logits, logits + vocab_, [](float x) { return !std::isfinite(x); });
        throw std::domain_error("a logit is " + std::to_string(*bad) +
                                ", so there is nothing to choose from: the state it started from is not finite");
    }
    const double log_sum = std::log(kernels_.exponentials(logits, vocab_, 1, most, p_.data()));
    const float* penalized = penalize(sampling, logits, history);
    int symbol;
    if (allowed) {
        const int count = select(penalized, allowed);
        symbol =
            symbols_[choose(sampling, selected_.data(), count, kernels_.highest(selected_.data(), count), uniform)];
    } else
        symbol = choose(sampling, penalized, vocab_, penalized == logits ? most : kernels_.highest(penalized, vocab_),
                        uniform);
    return {symbol, static_cast<double>(logits[symbol]) - most - log_sum, most, log_sum};
}

void Sampler::most_likely(const float* logits, const Drawn& drawn, int count, std::int64_t* symbols,
                          double* log_probabilities) {
    std::iota(symbols_.begin(), symbols_.end(), 0);
    std::partial_sort(symbols_.begin(), symbols_.begin() + count, symbols_.end(),
                      [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    for (int i = 0; i < count; ++i) {
        symbols[i] = symbols_[i];
        log_probabilities[i] = static_cast<double>(logits[symbols_[i]]) - drawn.most - drawn.log_sum;
    }
}

// The logits with the penalty of the symbols in the window, each once.
const float* Sampler::penalize(const Sampling& sampling, const float* logits, const History& history) {
    if (sampling.repetition_penalty == 1) return logits;
    const float penalty = static_cast<float>(sampling.repetition_penalty);
    std::copy_n(logits, vocab_, penalized_.data());
    const int window = std::min(sampling.repetition_window, history.size());
    for (int n = 0; n < window; ++n) {
        const std::int64_t symbol = history.back(n);
        if (seen_[symbol]) continue;
        seen_[symbol] = 1;
        penalized_[symbol] = logits[symbol] > 0 ? logits[symbol] / penalty : logits[symbol] * penalty;
    }
    for (int n = 0; n < window; ++n) seen_[history.back(n)] = 0;
    return penalized_.data();
}

// Gathers the logits of the allowed symbols; returns their number.
int Sampler::select(const float* logits, const std::uint8_t* allowed) {
    int count = 0;
    for (int symbol = 0; symbol < vocab_; ++symbol) {
        if (!allowed[symbol]) continue;
        selected_[count] = logits[symbol];
        symbols_[count++] = symbol;
    }
    if (count == 0) throw std::domain_error("no symbol is allowed to follow");
    return count;
}

// Sorts the next band of symbols behind the others; false if all are sorted.
bool Sampler::sort_more(int count) {
    if (sorted_ == count) return false;
    int end = sorted_;
    while (end == sorted_) {
        const double upper = band_;
        band_ = upper * kBand > kLastBand ? upper * kBand : -1;
        for (int i = 0; i < count; ++i)
            if (p_[i] < upper && p_[i] >= band_) candidates_[end++] = {p_[i], i};
    }
    // Stable: equally likely symbols stay in their own order.
    std::stable_sort(candidates_.begin() + sorted_, candidates_.begin() + end,
                     [](const Candidate& a, const Candidate& b) { return a.p > b.p; });
    sorted_ = end;
    return true;
}

// Chooses one of `count` logits, of which `most` is the largest.
int Sampler::choose(const Sampling& sampling, const float* logits, int count, float most, double uniform) {
    if (!std::isfinite(most))
        throw std::domain_error("the repetition penalty makes a logit infinite: use one nearer to 1");
    if (sampling.temperature == 0) return static_cast<int>(std::find(logits, logits + count, most) - logits);
    const double scale = 1 / sampling.temperature;
    if (!std::isfinite(most * scale))
        throw std::domain_error("a temperature of " + std::to_string(sampling.temperature) +
                                " is too small to divide by; use 0 for the most likely symbol");
    const double sum = kernels_.exponentials(logits, count, scale, most, p_.data());
    sorted_ = 0;
    band_ = 2;  // the largest p is 1
    // The symbols that top-k, top-p and min-p keep, all of them from the most likely down: their number and their sum.
    const int limit = sampling.top_k ? std::min(sampling.top_k, count) : count;
    int kept = 0;
    double kept_sum = 0;
    if (limit < count || sampling.top_p < 1 || sampling.min_p > 0)
        // The first is always kept: a denormal top_p counts as 0 here.
        for (double below = 0; kept < limit && (kept == 0 || below < sampling.top_p); below = kept_sum / sum, ++kept) {
            if (kept == sorted_) sort_more(count);
            if (candidates_[kept].p < sampling.min_p) break;  // the largest p is 1
            kept_sum += candidates_[kept].p;
        }
    else {
        kept = count;
        kept_sum = sum;
    }
    double upto = 0;
    for (int i = 0; i < kept; ++i) {
        if (i == sorted_) sort_more(count);
        upto += candidates_[i].p;
        if (upto > uniform * kept_sum) return candidates_[i].symbol;
    }
    return candidates_[kept - 1].symbol;  // rounding put the place past the end
}

}  // namespace vcdeploy
