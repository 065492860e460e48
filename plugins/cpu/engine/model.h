// A language model: embedding, layers of one unit, output layer. It evaluates given tokens or generates new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/output.h"
#include "engine/sampling.h"
#include "engine/step.h"
#include "system/denormals.h"
#include "system/turn.h"
#include "weights/input_table.h"
#include "weights/layer.h"
#include "weights/packing.h"

namespace vcdeploy {

// The weights of a model as stored in a file. Owned by the caller; needed only while a Model is constructed.
struct ModelWeights {
    Unit unit;
    int dim, vocab;
    MatrixView embedding;  // [vocab, dim]
    std::vector<LayerWeights> layers;
    MatrixView output;  // [vocab, dim]
    const float* bias;  // [vocab]
};

struct ModelOptions {
    Softness softness;
    Precision precision;
    int threads;
    std::size_t table_budget;  // maximum size of the first layer's table in bytes; a larger one is not built
    const Kernels* kernels;
};

// The outputs of Model::generate, owned by the caller. Row t of each belongs to generated token t.
struct Generated {
    std::int64_t* tokens;  // [length]
    // [length, layers]: m of the step that token t was sampled from. Row 0 is the step over the prime's last token;
    // row t > 0 is the step over token t - 1.
    float* m;
    // [length]: ln p(token) under the softmax of the logits, before temperature, top-k and top-p ("logprobs" in
    // completion APIs).
    double* log_probabilities;
    float* state;  // [S, D]: after the last token processed
};

class Model {
  public:
    // Throws std::invalid_argument if a weight is NaN, infinite or outside the precision's range.
    Model(const ModelWeights& weights, const ModelOptions& options);

    int dim() const { return dim_; }
    int vocab() const { return vocab_; }
    int layers() const { return static_cast<int>(layers_.size()); }
    int state_rows() const { return layers() * spec_of(unit_).state_rows; }  // S
    const Kernels& kernels() const { return stepper_.kernels(); }
    std::size_t weight_bytes() const;
    std::size_t table_bytes() const { return table_ ? table_->bytes() : 0; }

    // tokens [T, B], each from 0 to vocab - 1; state [S, B, D] -> logits [T, B, vocab], state_out [S, B, D],
    // compute [T, B, layers] (m). Concurrent calls take turns, piece by piece. Calls pause() between pieces of some
    // milliseconds (or one step, if that takes longer) and while it waits for its turn; what it throws ends the call.
    void run(const std::int64_t* tokens, int T, int B, const float* state, float* logits, float* state_out,
             float* compute, const Pause& pause);

    // Processes the prime [n >= 1], then samples `length >= 1` tokens. The last sampled token is not processed: pass it
    // as the prime of the next call. pause: as for run.
    void generate(const std::int64_t* prime, int n, const double* uniforms, int length, const Sampling& sampling,
                  const float* state, const Generated& out, const Pause& pause);

  private:
    // At most so many tokens go through one layer before the next layer's weights are read.
    static constexpr int kChunk = 128;
    // At most so many multiply-adds in a piece, if every step updates the whole state: some milliseconds.
    static constexpr std::int64_t kPiece = 64'000'000;

    // A piece of work on a state, from the state before to the one after it, then a pause.
    template <class Work>
    void alone(const Pause& pause, float* state, std::size_t stride, const Work& work) {
        {
            const Holding held(turn_, pause);
            const FlushDenormals flush(layers_[0].precision != Precision::int8);
            read_state(state, stride);
            output_.reset();
            work();
            write_state(state, stride);
        }
        pause();
    }

    void read_state(const float* state, std::size_t stride);
    void write_state(float* state, std::size_t stride) const;
    void advance(const std::int64_t* tokens, std::size_t stride, int count, float* compute, std::size_t compute_stride);

    Unit unit_;
    int dim_, vocab_;
    Buffer<float> embedding_;  // [vocab, dim]
    std::vector<Layer> layers_;
    std::unique_ptr<InputTable> table_;

    int chunk_;  // tokens of a piece

    Turn turn_;  // guards the working memory below
    Stepper stepper_;
    OutputLayer output_;
    Buffer<float> state_;  // [S, padded]
    Buffer<float> rows_;   // [kChunk, padded], outputs of the last layer
    int changed_[kChunk];  // how many leading elements of each row may differ from the row before
};

}  // namespace vcdeploy
