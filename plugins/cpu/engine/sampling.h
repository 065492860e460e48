// Samples a symbol from logits, in double; the same algorithm as `choose` in vcdeploy/runtime/sampling.py.
#pragma once

#include <vector>

namespace vcdeploy {

// Throws std::invalid_argument unless temperature >= 0, top_k >= 0 and 0 < top_p <= 1.
struct Sampling {
    Sampling(double temperature, int top_k, double top_p);

    double temperature;  // 0: the most likely symbol
    int top_k;           // 0: all
    double top_p;        // 1: all
};

// Samples symbols of one vocabulary. Reuses its working memory between calls.
class Sampler {
  public:
    Sampler(const Sampling& sampling, int vocab);

    // Returns the symbol at `uniform` (0 to 1) of the cumulative distribution of logits [vocab].
    // Throws std::domain_error if a logit is NaN or infinite.
    int choose(const float* logits, double uniform);

  private:
    struct Candidate {
        double p;
        int symbol;
    };

    Sampling sampling_;
    std::vector<Candidate> candidates_;
};

// Log-softmax of finite logits [vocab] at `symbol`, in double.
double log_probability(const float* logits, int vocab, int symbol);

}  // namespace vcdeploy
