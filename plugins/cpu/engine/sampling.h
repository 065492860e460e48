// From logits to a symbol, in double: the same symbols as `draw` in vcdeploy/runtime/sampling.py.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

// The options of `Sampling` in vcdeploy/runtime/sampling.py, in the order in which they apply.
struct Sampling {
    double repetition_penalty = 1;  // 1: none
    int repetition_window = 64;     // how many of the last tokens it looks at
    double temperature = 1;         // 0: the most likely symbol
    int top_k = 0;                  // 0: all
    double top_p = 1;               // 1: all
    double min_p = 0;               // 0: all
    std::vector<std::vector<std::int64_t>> stop;

    // Throws std::invalid_argument if a value is outside its range.
    void check() const;
};

// The last tokens of a sequence. It owns no memory elsewhere, so that it is whole in a forked process.
class History {
  public:
    static constexpr int kMost = 1024;  // the largest repetition_window, and length of a stop sequence

    History() = default;
    explicit History(const std::vector<std::int64_t>& tokens) {
        for (const std::int64_t token : tokens) add(token);
    }

    void add(std::int64_t token);
    int size() const { return size_; }
    std::int64_t back(int n) const;  // the n-th token from the end, from 0 on

    // Whether it ends with one of these sequences, of which the first `generated` tokens from the end may be part.
    bool ends_with(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t generated) const;

  private:
    std::array<std::int32_t, kMost> tokens_;  // a ring
    int size_ = 0;
    int end_ = 0;  // where the next one goes
};

// Draws symbols of one vocabulary; keeps its working memory from one draw to the next.
class Sampler {
  public:
    Sampler(int vocab, const Kernels& kernels);

    struct Drawn {
        int symbol;
        double log_probability;  // ln of its softmax, before any option
        float most;              // the largest logit
        double log_sum;          // ln of the sum of e^(logit - most)
    };

    // The symbol at `uniform`, between 0 and 1, of the cumulative distribution of logits [vocab], which runs from the
    // most likely symbol down; equally likely symbols follow in their own order. allowed [vocab]: the symbols to choose
    // from, at least one; null for all. Throws std::domain_error if a logit is NaN or infinite.
    Drawn draw(const Sampling& sampling, const float* logits, double uniform, const History& history,
               const std::uint8_t* allowed);

    // The `count` most likely symbols from the first down, and their log-probabilities, for the logits of a draw;
    // count is at most the size of the vocabulary.
    void most_likely(const float* logits, const Drawn& drawn, int count, std::int64_t* symbols,
                     double* log_probabilities);

  private:
    struct Candidate {
        double p;
        int symbol;
    };

    int choose(const Sampling& sampling, const float* logits, int count, float most, double uniform);
    const float* penalize(const Sampling& sampling, const float* logits, const History& history);
    int select(const float* logits, const std::uint8_t* allowed);
    bool sort_more(int count);

    int vocab_;
    const Kernels& kernels_;
    std::vector<float> penalized_;       // [vocab]
    std::vector<float> selected_;        // [vocab]: logits of the allowed symbols
    std::vector<int> symbols_;           // [vocab]: the allowed symbols
    std::vector<std::uint8_t> seen_;     // [vocab]: 0 between draws
    std::vector<double> p_;              // [vocab], e^(logit / temperature), the largest being 1
    std::vector<Candidate> candidates_;  // [vocab], the `sorted_` most likely symbols in order
    int sorted_ = 0;
    double band_ = 0;  // all symbols with p >= band_ are sorted
};

}  // namespace vcdeploy
