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

// Tokens to sample for R sequences, owned by the caller. Row t of each output belongs to the t-th token of every
// sequence.
struct Generation {
    const Sampling* sampling;  // [R]
    const double* uniforms;    // [length, R], between 0 and 1
    int length;
    const std::int64_t* most;         // [R]: tokens of each sequence, at most `length`
    const std::uint8_t* allowed;      // [R, vocab]: the symbols to choose from at every step; null for all
    int alternatives;                 // how many of the most likely symbols to return
    std::int64_t* tokens;             // [length, R]
    float* m;                         // [length, R, layers]: of the step that the token was sampled from
    double* log_probabilities;        // [length, R]: ln of its softmax, before any option
    std::int64_t* others;             // [length, R, alternatives]: the most likely symbols, from the first down
    double* other_log_probabilities;  // [length, R, alternatives]
    std::int64_t* lengths;            // [R]: tokens of each sequence; fewer than `most` if a stop sequence ended it
};

// What a sequence has read and generated.
struct Past {
    History history;
    std::int64_t read = 0;       // tokens, with those generated
    std::int64_t generated = 0;  // since the last token that was given
};

// Shares the weights of its network; the working memory is its own, so that sessions run at the same time. Calls of one
// session take turns. A sampled token is read with the next call. Throws std::domain_error if logits are not finite.
//
// `which` are the numbers of the sequences that a call is about, each once; the others stay as they are.
class Session {
  public:
    // m of the last step of every sequence, and the logits that follow it. Zero before the first step.
    Session(std::shared_ptr<const Network> network, int batch);

    int batch() const { return batch_; }
    const std::vector<int>& all() const { return all_; }  // the numbers of all sequences
    const Network& network() const { return *network_; }
    const std::shared_ptr<const Network>& shared_network() const { return network_; }

    // Written by `step` and `observe`; valid as long as somebody holds them.
    const std::shared_ptr<float[]>& logits() const { return logits_; }  // [B, vocab]
    const std::shared_ptr<float[]>& m() const { return m_; }            // [B, layers]

    // Reads one token of every sequence, [B], and computes the logits that follow.
    void step(const std::int64_t* tokens, const Pause& pause);

    // Reads tokens [T, R] without logits. pause: as for Model::run.
    void feed(const std::vector<int>& which, const std::int64_t* tokens, int T, const Pause& pause);

    // Samples tokens and reads them. The sequences must have read something.
    void generate(const std::vector<int>& which, const Generation& generation, const Pause& pause);

    // Reads what was sampled last, and computes the logits that follow.
    void observe(const std::vector<int>& which, const Pause& pause);

    // Copies of everything a sequence needs to go on: the state [S, R, D], m [R, layers], and what it read [R]. Reads
    // what was sampled last.
    void save(const std::vector<int>& which, float* state, float* m, Past* past, const Pause& pause);

    // Goes on from copies of `save`; computes the logits. Also as a fork of another session.
    void restore(const std::vector<int>& which, const float* state, const float* m, const Past* past,
                 const Pause& pause);

    // Starts sequences again, from a zero state.
    void reset(const std::vector<int>& which, const Pause& pause);

  private:
    template <class Work>
    void alone(const Pause& pause, const Work& work);
    void read_pending(const std::vector<int>& which);
    void compute_logits(const std::vector<int>& which);
    void read(const std::vector<int>& which, const std::int64_t* tokens, int T);
    void draw(int n, int t, int column, int columns, const Generation& generation);

    std::shared_ptr<const Network> network_;
    int batch_;
    Turn turn_;  // guards everything below
    Batch states_;
    Sampler sampler_;
    std::vector<Past> past_;
    std::vector<std::int64_t> pending_;  // of each sequence: the sampled token it has not read, or -1
    std::vector<int> all_, unread_;
    std::vector<std::int64_t> given_;  // [T, batch]: tokens to read, where Batch looks for them
    std::vector<float> fractions_;     // [T, batch, layers]: their m
    std::shared_ptr<float[]> logits_, m_;
};

}  // namespace vcdeploy
