// One step of one sequence through one layer: schedule, mask, then the rows, shared among the team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.h"
#include "system/buffer.h"
#include "system/threads.h"
#include "weights/input_table.h"
#include "weights/layer.h"

namespace vcdeploy {

// The working memory of steps, made once; nothing is allocated in a step. One sequence at a time.
class Stepper {
  public:
    Stepper(Unit unit, int dim, Precision precision, Softness softness, const Kernels& kernels, int threads);

    // What a layer reads: an input x [dim], and for a tabulated layer the token whose embedding it is.
    struct Input {
        const float* x;
        const InputTable* table = nullptr;
        std::int64_t token = 0;
    };

    // Updates h [padded] (and, for VCLSTM, c [padded]) and returns m. given_m: the m to use instead of the scheduler's, or null.
    // A NaN m makes the whole state NaN, as in the reference; in int8 a value that is not finite the active part of it.
    float step(const Layer& layer, const Input& input, const float* given_m, float* h, float* c);

    // Floats of a state's row: D rounded up to a shell. What lies past D must be 0, and stays so.
    std::size_t padded() const { return padded_; }

    const Kernels& kernels() const { return kernels_; }
    Team& team() { return team_; }

  private:
    bool prepare(const Layer& layer, const Input& input, const Extent& extent, const float* h);
    bool quantize(const Input& input, int active, int tabulated);

    int dim_;
    std::size_t padded_;
    int levels_;  // of an activation in int8
    Softness softness_;
    Softening softening_;
    const Kernels& kernels_;
    Team team_;
    Buffer<float> e_, hbar_, reset_, input_, sums_;
    Buffer<std::int16_t> hbar_levels_, reset_levels_, input_levels_, row_levels_;
    Buffer<std::int32_t> counts_;
    Step step_{};
};

}  // namespace vcdeploy
