// Packed weights: built once when a model is loaded, read at every step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.h"
#include "system/buffer.h"
#include "weights/matrix_view.h"
#include "weights/precision.h"

namespace vcdeploy {

// The square matrices of the gates that share an input, in the hook layout (layout.h).
class HookMatrix {
  public:
    HookMatrix() = default;

    // Gates [first, last) of a stack [gates * dim, dim]. Throws std::invalid_argument if a weight is NaN, infinite
    // or outside the range of f16.
    HookMatrix(const MatrixView& stack, int first, int last, int dim, Precision precision);

    PackedWeights view() const { return {precision_, weights_.data(), scales_.data()}; }
    std::size_t bytes() const { return weights_.bytes() + scales_.bytes(); }

  private:
    Precision precision_ = Precision::f32;
    Buffer<unsigned char> weights_;
    Buffer<float> scales_;  // if quantized: [panel][gate][16], the value of one level
};

// A matrix that is always read whole, such as the output layer: plain panels, [panel][column][16].
class PanelMatrix {
  public:
    PanelMatrix() = default;

    // rows: [count, dim]. Throws like HookMatrix.
    PanelMatrix(const MatrixView& rows, int count, int dim, Precision precision);

    PackedWeights view() const { return {precision_, weights_.data(), scales_.data()}; }
    std::size_t bytes() const { return weights_.bytes() + scales_.bytes(); }

  private:
    Precision precision_ = Precision::f32;
    Buffer<unsigned char> weights_;
    Buffer<float> scales_;  // if quantized: [panel][16]
};

}  // namespace vcdeploy
