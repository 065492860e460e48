// Sequences that go through a network side by side and share the weights they read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/network.h"
#include "engine/output.h"
#include "engine/step.h"
#include "system/buffer.h"

namespace vcdeploy {

// Tokens to read, t * batch + n for step t of sequence n, and where their m and logits go.
struct Reading {
    const std::int64_t* tokens;  // [steps, batch]
    int steps;
    std::size_t batch;
    float* compute;           // [steps, batch, layers]: m
    float* logits = nullptr;  // [steps, batch, vocab], or null
};

// The states of sequences and the working memory of their steps. Every sequence gets the bits it would get alone. One
// caller at a time; denormals are the caller's business.
class Batch {
  public:
    explicit Batch(const Network& network);

    // Makes room for so many sequences; the state of a new one is zero.
    void reserve(int count);

    // Row s of a sequence's state is at state + s * stride, [dim].
    void read_state(int n, const float* state, std::size_t stride);
    void write_state(int n, float* state, std::size_t stride) const;

    // Steps that `count` sequences should read before the caller pauses: some milliseconds, at least one.
    int piece(int count) const;

    // Reads at most piece(which.size()) tokens of the sequences `which`.
    void read(const std::vector<int>& which, const Reading& reading);

    // Computes the logits that follow what the sequences `which` have read.
    void compute_logits(const std::vector<int>& which);

    const float* logits(int n) const { return outputs_[n].logits(); }  // [vocab], of the last compute_logits or read

  private:
    // At most so many rows of outputs are kept for the next layer, unless one step has more.
    static constexpr int kRows = 128;
    // At most so many multiply-adds in a piece, if every step updates the whole state.
    static constexpr std::int64_t kPiece = 64'000'000;

    float* state(int n, int row) { return states_[n].data() + row * stepper_.padded(); }
    Stepper::Kept& kept(int n, int l) { return kept_[n * network_.layers() + l]; }
    void read_layer(int l, const std::vector<int>& which, const Reading& reading, bool keep_rows);

    const Network& network_;
    int chunk_;  // steps of one sequence in a piece
    Stepper stepper_;
    std::vector<Buffer<float>> states_;           // of each sequence: [S, padded]
    std::vector<Stepper::Kept> kept_;             // of each sequence, in each layer
    std::vector<OutputLayer::Sequence> outputs_;  // of each sequence
    std::vector<int> stale_;                      // of each: leading elements that outputs_ has not seen
    std::vector<Stepper::Sequence> sequences_;
    std::vector<OutputLayer::Input> inputs_;
    Buffer<float> rows_;        // [steps, sequences, padded]: outputs of a layer
    std::vector<int> changed_;  // [steps, sequences]: leading elements of a row that may differ from the one before
};

}  // namespace vcdeploy
