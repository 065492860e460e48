// One step of one sequence through one layer: scheduler, mask, then the rows, split among the threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.h"
#include "system/buffer.h"
#include "system/threads.h"
#include "weights/input_table.h"
#include "weights/layer.h"

namespace vcdeploy {

// Runs steps for one sequence at a time. Owns the working memory, so that a step allocates nothing.
class Stepper {
  public:
    Stepper(Unit unit, int dim, Precision precision, Softness softness, const Kernels& kernels, int threads);

    // The input of a layer: x [dim] and, for a layer with a table, the token x is the embedding of.
    struct Input {
        const float* x;
        const InputTable* table = nullptr;
        std::int64_t token = 0;
    };

    // Updates h [padded] (and, for VCLSTM, c [padded]) and returns m. given_m: overrides the scheduler's m, or null.
    // A NaN m makes the whole state NaN, as in the reference. In int8, a value that is not finite makes the active part
    // NaN.
    float step(const Layer& layer, const Input& input, const float* given_m, float* h, float* c);

    // The leading elements of the state that the last step may have changed.
    int changed() const { return changed_; }

    // Floats per row of the state: D rounded up to a shell. Elements past D must be 0 and stay 0.
    std::size_t padded() const { return padded_; }

    const Kernels& kernels() const { return kernels_; }
    Team& team() { return team_; }

  private:
    bool prepare(const Layer& layer, const Input& input, const Extent& extent, const float* h);
    bool quantize(const Input& input, int active, int tabulated);

    int dim_;
    std::size_t padded_;
    int levels_;  // quantization levels of an activation (int8)
    Softness softness_;
    Softening softening_;
    const Kernels& kernels_;
    Team team_;
    Buffer<float> e_, hbar_, reset_, input_, sums_;
    Buffer<std::int16_t> hbar_levels_, reset_levels_, input_levels_, row_levels_;
    Buffer<std::int32_t> counts_;
    Step step_{};
    int changed_ = 0;
};

}  // namespace vcdeploy
