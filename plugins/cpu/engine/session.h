// Sequences that a caller reads and generates token by token; their states stay here between calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/network.h"
#include "engine/sampling.h"
#include "system/buffer.h"
#include "system/turn.h"

namespace vcdeploy {

// Tokens to sample, owned by the caller. Row t of each output belongs to the t-th token of every sequence.
struct Generation {
    const Sampling* sampling;  // [B]
    const double* uniforms;    // [length, B], between 0 and 1
    int length;
    const std::uint8_t* allowed;  // [B, vocab]: the symbols to choose from at every step; null for all
    std::int64_t* tokens;         // [length, B]
    float* m;                     // [length, B, layers]: of the step that the token was sampled from
    double* log_probabilities;    // [length, B]: ln of its softmax, before any option
    std::int64_t* lengths;        // [B]: tokens of each sequence; fewer than `length` if a stop sequence ended it
};

// What a sequence has read and generated.
struct Past {
    History history;
    std::int64_t read = 0;       // tokens, with those generated
    std::int64_t generated = 0;  // since the last token that was given
};

// Shares the weights of its network; the working memory is its own, so that sessions run at the same time. Calls of one
// session take turns. A sampled token is read with the next call. Throws std::domain_error if logits are not finite.
class Session {
  public:
    // m of the last step of every sequence, and the logits that follow it. Zero before the first step.
    Session(std::shared_ptr<const Network> network, int batch);

    int batch() const { return batch_; }
    const Network& network() const { return *network_; }
    const std::shared_ptr<const Network>& shared_network() const { return network_; }

    // Written by `step` and `observe`; valid as long as somebody holds them.
    const std::shared_ptr<float[]>& logits() const { return logits_; }  // [B, vocab]
    const std::shared_ptr<float[]>& m() const { return m_; }            // [B, layers]

    // Reads one token of every sequence, [B], and computes the logits that follow.
    void step(const std::int64_t* tokens, const Pause& pause);

    // Reads tokens [T, B] without logits. pause: as for Model::run.
    void feed(const std::int64_t* tokens, int T, const Pause& pause);

    // Samples tokens and reads them. All sequences must have read something.
    void generate(const Generation& generation, const Pause& pause);

    // Reads what was sampled last, and computes the logits that follow.
    void observe(const Pause& pause);

    // Copies of everything a sequence needs to go on: the state [S, B, D], m [B, layers], and what it read [B]. Reads
    // what was sampled last.
    void save(float* state, float* m, Past* past, const Pause& pause);

    // Goes on from copies of `save`; computes the logits. Also as a fork of another session.
    void restore(const float* state, const float* m, const Past* past, const Pause& pause);

    // Starts sequences again, from a zero state.
    void reset(const std::vector<int>& which, const Pause& pause);

  private:
    template <class Work>
    void alone(const Pause& pause, const Work& work);
    void read_pending(const std::vector<int>& which);
    void compute_logits();
    void remember(const std::int64_t* tokens, int T);
    void draw(int n, int t, const Generation& generation);

    std::shared_ptr<const Network> network_;
    int batch_;
    Turn turn_;  // guards everything below
    Batch states_;
    Sampler sampler_;
    std::vector<Past> past_;
    std::vector<std::int64_t> pending_;  // of each sequence: the sampled token it has not read, or -1
    std::vector<int> all_, unread_;
    std::shared_ptr<float[]> logits_, m_;
};

}  // namespace vcdeploy
