// From logits to a symbol, the way vcdeploy/runtime/sampling.py's `choose` does it, in double.
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

// Chooses symbols of one vocabulary; keeps its working memory from one to the next.
class Sampler {
  public:
    Sampler(const Sampling& sampling, int vocab);

    // The symbol at `uniform`, between 0 and 1, of the cumulated distribution of logits [vocab].
    // Throws std::domain_error where one is NaN or infinite.
    int choose(const float* logits, double uniform);

  private:
    struct Candidate {
        double p;
        int symbol;
    };

    Sampling sampling_;
    std::vector<Candidate> candidates_;
};

// ln of the softmax of finite logits [vocab] at `symbol`, in double.
double log_probability(const float* logits, int vocab, int symbol);

}  // namespace vcdeploy
