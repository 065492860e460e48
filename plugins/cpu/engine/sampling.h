// From logits to a symbol, in double: the same symbols as `choose` in vcdeploy/runtime/sampling.py.
#pragma once

#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

// Throws std::invalid_argument unless temperature >= 0, top_k >= 0 and 0 < top_p <= 1.
struct Sampling {
    Sampling(double temperature, int top_k, double top_p);

    double temperature;  // 0: the most likely symbol
    int top_k;           // 0: all
    double top_p;        // 1: all
};

// Draws symbols of one vocabulary; keeps its working memory from one draw to the next.
class Sampler {
  public:
    Sampler(const Sampling& sampling, int vocab, const Kernels& kernels);

    struct Drawn {
        int symbol;
        double log_probability;  // ln of its softmax, before temperature, top-k and top-p
    };

    // The symbol at `uniform`, between 0 and 1, of the cumulative distribution of logits [vocab], which runs from the
    // most likely symbol down; equally likely symbols follow in their own order.
    // Throws std::domain_error if a logit is NaN or infinite.
    Drawn draw(const float* logits, double uniform);

  private:
    struct Candidate {
        double p;
        int symbol;
    };

    int choose(double sum, double uniform);
    bool sort_more();

    Sampling sampling_;
    const Kernels& kernels_;
    std::vector<double> p_;              // [vocab], e^(logit / temperature), the largest being 1
    std::vector<Candidate> candidates_;  // [vocab], the `sorted_` most likely symbols in order
    int sorted_ = 0;
    double band_ = 0;  // all symbols with p >= band_ are sorted
};

}  // namespace vcdeploy
