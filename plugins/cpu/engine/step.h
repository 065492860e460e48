// One step of one or more sequences through one layer: scheduler, mask, then the rows, split among the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kept.h"
#include "kernels/table.h"
#include "system/buffer.h"
#include "system/threads.h"
#include "weights/input_table.h"
#include "weights/layer.h"

namespace vcdeploy {

// Owns the working memory of steps, which allocate nothing once it is large enough.
class Stepper {
  public:
    Stepper(Unit unit, int dim, Precision precision, Softness softness, const Kernels& kernels, int threads);

    // What is kept of a sequence in a layer from one step to the next.
    struct Kept {
        explicit Kept(int dim) : of_state(dim), of_input(dim), largest_input(dim) {}

        void change_input(int elements) {
            of_input.change(elements);
            largest_input.change(elements);
        }

        // After h was set from outside, and x of the next step has nothing to do with the last one.
        void forget(int dim) {
            of_state.change(dim);
            change_input(dim);
        }

        KeptDot of_state, of_input;  // u·h, v·x
        KeptLargest largest_input;   // of x
    };

    // The input of a layer: x [dim], of which the first `changed` elements may differ from the last step's; and for a
    // layer with a table, the token x is the embedding of.
    struct Input {
        const float* x = nullptr;
        int changed = 0;
        const InputTable* table = nullptr;
        std::int64_t token = 0;
    };

    // A sequence before and after a step.
    struct Sequence {
        Input input;
        Kept* kept;
        const float* given_m;  // overrides the scheduler's m, or null
        float* h;              // [padded], updated
        float* c;              // [padded], updated; VCLSTM
        float m = 0;           // set: m; 1 in a dense unit
        int changed = 0;       // set: the leading elements of the state that may have changed
    };

    // Steps sequences through a layer. They share the weights they read, and each gets the bits it would get alone.
    // A NaN m makes the whole state NaN, as in the reference. In int8 and w8a8, a value that is not finite makes the
    // active part NaN.
    void step(const Layer& layer, Sequence* sequences, int count);

    // Floats per row of the state: D rounded up to a shell. Elements past D must be 0 and stay 0.
    std::size_t padded() const { return padded_; }

    const Kernels& kernels() const { return kernels_; }
    Team& team() { return team_; }

  private:
    // The working memory of one sequence.
    struct Slot {
        Slot(std::size_t padded, const UnitSpec& spec, Precision precision);

        Buffer<float> e, hbar, reset, input, sums;
        Buffer<std::int16_t> levels;  // of hbar, reset and input, in int8
        Buffer<std::int8_t> bytes;    // the same in w8a8
        Buffer<std::int32_t> counts;  // if quantized
        Step step{};
    };

    void schedule(const Layer& layer, Sequence& sequence) const;
    bool start(const Layer& layer, Sequence& sequence, Slot& slot);
    bool prepare(const Layer& layer, const Sequence& sequence, const Extent& extent, Slot& slot);
    void step_together(const Layer& layer, Sequence* const* sequences, int count);

    const UnitSpec& spec_;
    int dim_;
    std::size_t padded_;
    Precision precision_;
    int levels_;  // quantization levels of an activation; 0 if not quantized
    Softness softness_;
    Softening softening_;
    const Kernels& kernels_;
    Team team_;
    std::vector<std::unique_ptr<Slot>> slots_;  // up to kMostSteps
    std::vector<Sequence*> order_;              // of a batch, the largest m first
};

}  // namespace vcdeploy
