// The output layer: logits = W h + bias, paying only for what changed in h since the last token.
//
// A step changes h up to its a. The columns are cut into blocks, and for every row the sums from each block to the last
// column are kept: S_b = S_{b+1} + W_b h_b. A new token only computes the blocks up to a again; beyond it the sums still
// hold, bit for bit, so that logits do not depend on what was computed before, and nothing drifts. Every sequence has
// sums of its own; sequences of a batch share the weights they read.
#pragma once

#include <cstdint>

#include "engine/kept.h"
#include "kernels/table.h"
#include "system/buffer.h"
#include "system/threads.h"
#include "weights/packing.h"

namespace vcdeploy {

class OutputLayer {
  public:
    // W [vocab, dim], bias [vocab]. Throws std::invalid_argument if a weight is NaN, infinite or outside the range of
    // f16.
    OutputLayer(const MatrixView& W, const float* bias, int vocab, int dim, Precision precision);

    std::size_t bytes() const { return W_.bytes() + bias_.bytes(); }

    // What is kept of a sequence from one token to the next.
    class Sequence {
      public:
        explicit Sequence(const OutputLayer& layer);

        // Forgets the last h: the next call computes everything.
        void reset() { fresh_ = true; }

        const float* logits() const { return logits_.data(); }  // [vocab]

      private:
        friend class OutputLayer;

        // Quantizes what changed in h; everything, if its range changed. Returns false if h is not finite.
        bool quantize(Activations& h, int dim, int levels, int& changed, const Kernels& kernels);

        Buffer<float> sums_;           // [blocks + 1][vocab, rounded up to a panel]: S, the last one zero; or
        Buffer<std::int32_t> counts_;  // the same if quantized
        Buffer<std::int16_t> levels_;  // [dim, rounded up to a shell]: h quantized, in int8
        Buffer<std::int8_t> bytes_;    // the same in w8a8
        KeptLargest largest_;          // of h, if quantized
        float unit_ = 0;               // value of a level
        Buffer<float> logits_;         // [vocab, rounded up to a panel]
        bool fresh_ = true;
    };

    // The next token of a sequence.
    struct Input {
        Sequence* sequence;
        const float* h;  // [dim, padded with zeros to a shell]
        int changed;     // elements of h that may differ from the last call: the first ones, at most so many
    };

    // Computes the logits of every input. If quantized, an h that is not finite gives NaN.
    void run(const Input* inputs, int count, const Kernels& kernels, Team& team) const;

  private:
    static constexpr int kTogether = 64;  // sequences that share a pass over W

    int vocab_, dim_;
    PanelMatrix W_;
    Buffer<float> bias_;  // [vocab, rounded up to a panel]
};

}  // namespace vcdeploy
