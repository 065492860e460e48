// The output layer: logits = W h + bias, paying only for what changed in h since the last token.
//
// A step changes h up to its a. The columns are cut into blocks, and for every row the sums from each block to the last
// column are kept: S_b = S_{b+1} + W_b h_b. A new token only computes the blocks up to a again; beyond it the sums still
// hold, bit for bit, so that logits do not depend on what was computed before, and nothing drifts.
#pragma once

#include <cstdint>

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

    // Forgets the last h: the next call computes everything.
    void reset() { fresh_ = true; }

    // Computes the logits of h [dim, padded with zeros to a shell], which differs from that of the last call in the
    // first `changed` elements at most. In int8, an h that is not finite gives NaN.
    void run(const float* h, int changed, const Kernels& kernels, Team& team);

    const float* logits() const { return logits_.data(); }  // [vocab]

  private:
    // Quantizes what changed in h; everything, if its range changed. Returns false if h is not finite.
    bool quantize(const float* h, int& changed, const Kernels& kernels);

    int vocab_, dim_;
    PanelMatrix W_;
    Buffer<float> bias_;           // [vocab, rounded up to a panel]
    Buffer<float> sums_;           // [blocks + 1][vocab, rounded up to a panel]: S, the last one zero; not in int8
    Buffer<std::int32_t> counts_;  // the same in int8
    Buffer<std::int16_t> levels_;  // [dim, rounded up to a shell]: h quantized, in int8
    Buffer<float> largest_;        // [blocks]: largest magnitude in each block, in int8
    float unit_ = 0;               // value of a level
    Buffer<float> logits_;         // [vocab, rounded up to a panel]
    bool fresh_ = true;
};

}  // namespace vcdeploy
