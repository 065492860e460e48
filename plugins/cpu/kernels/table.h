// The functions compiled once per instruction set, as a table, and the structs they take.
//
// The structs hold pointers and sizes only; the caller owns the memory. All float arrays start on a cache line and are
// zero-padded from D to the next multiple of 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/spec.h"
#include "weights/precision.h"

namespace vcdeploy {

struct Extent {
    int ones;    // leading dimensions whose mask is exactly 1
    int active;  // a
};

// The mask of a quantized precision (scheduler_int8.h), as floats.
struct Softening {
    float sharpness;
    float epsilon;
    double reach;  // dimensions on either side of m*D past which the threshold makes the mask 0 or 1
};

struct PackedWeights {
    Precision precision;
    const void* weights;
    const float* scales;  // if quantized: [panel][gate][16]
};

// A vector to multiply by a matrix. In int8 and w8a8 it is quantized (quantization.h): level is value * levels_of_one,
// rounded half to even, and represents level * unit.
struct Activations {
    const float* value;    // [D]
    std::int16_t* level;   // [D], in int8, else null
    std::int8_t* level_8;  // [D], in w8a8, else null
    float levels_of_one;
    float unit;
};

// One step of one sequence, with a and the mask already computed (docs/design.md, section 1).
struct Step {
    int active;      // a: rows to update and columns to read
    const float* e;  // [D], the mask; 0 from a to the end of its shell
    Activations hbar;
    Activations reset;   // VCGRU: r ⊙ hbar, written by the first phase and read by the second
    float* reset_value;  // [D], its values
    Activations input;   // xbar; with a table, xbar minus what the table row covers
    int input_begin;     // the columns of V to multiply by `input`
    int input_end;
    const float* tabulated;                // the table row: V x up to some column, [panel][gate][16], or null
    const std::int32_t* tabulated_counts;  // the same if quantized, in levels
    PackedWeights U;                       // the gates that read hbar
    PackedWeights U_reset;                 // VCGRU: the gate that reads r ⊙ hbar; GRU: the one whose product r resets
    PackedWeights V;
    float* sums;           // [panel][gate][16], accumulates U hbar + V xbar
    std::int32_t* counts;  // the same shape, if quantized
    const float* bias;     // [panel][gate][16], or null
    // GRU: the product that r resets, its counts and its bias, or null: [panel][16] each.
    float* apart;
    std::int32_t* apart_counts;
    const float* apart_bias;
    float* h;  // [D], updated in place up to a
    float* c;  // [D], VCLSTM
};

// A thread's part of the rows: shells `member`, `member` + `members`, … Each row is summed by one thread in a fixed
// order, so that the result does not depend on the number of threads.
struct Part {
    int member;
    int members;
};

constexpr int kMostSteps = 16;  // at once

// Steps of up to kMostSteps sequences through one layer, which share the weights they read. Sorted by a, the largest first.
struct Steps {
    const Step* const* step;
    int count;
    const Step& operator[](int n) const { return *step[n]; }
};

using Phase = void (*)(Steps, Part);

constexpr int kKeptBlock = 64;  // elements of a state whose sums are kept from one step to the next
constexpr int kept_blocks(int elements) { return (elements + kKeptBlock - 1) / kKeptBlock; }

// logits = W h + bias for one token, by sums over blocks of columns: S_b = S_{b+1} + W_b h_b (engine/output.h).
struct OutputCall {
    Activations h;         // [dim]
    int changed;           // columns up to which S is computed again
    float* sums;           // [blocks + 1][rows, rounded up to a panel]: S
    std::int32_t* counts;  // the same if quantized
    float* logits;         // [rows, rounded up to a panel]
};

// Tokens of several sequences, which share the weights they read.
struct OutputCalls {
    const OutputCall* call;
    int count;
    const float* bias;  // [rows, rounded up to a panel]
    int rows, dim;      // of W
};

// The columns of V that a step has left to multiply, in whole panels: e ⊙ x less the first `known` elements of x.
struct InputCall {
    const float* e;  // [active, to the end of its shell]
    const float* x;  // [dim], need not be aligned
    int dim, active, known;
    int begin, end;        // the columns to set
    float* value;          // [end, to the end of its panel]
    std::int16_t* level;   // the same in int8, instead of values: levels of e ⊙ x less those of x; or null
    std::int8_t* level_8;  // the same in w8a8, or null
    float levels_of_one;
};

constexpr int kReadTogether = 128;  // floats: `sum` takes a multiple of this

struct Kernels {
    const char* name;

    // Σ a_i b_i in double, the same bits from every table and whatever is kept: products of floats are exact in double,
    // and element i always goes to partial sum i mod 16, block by block from the last to the first. kept: the partial
    // sums from each block on, [blocks + 1][16], the last ones zero, or null. Those past the first `changed` elements
    // must be of the same vectors; the others are computed. Without `kept`, changed is n.
    double (*dot)(const float* a, const float* b, int n, int changed, double* kept);

    // The largest magnitude among n values; NaN if one is NaN.
    float (*largest)(const float* values, int n);

    // Sets levels [begin, end) of x, extended to whole panels. The values must be finite.
    void (*quantize)(const Activations& x, int begin, int end);

    // Sets hbar = e ⊙ h up to the end of a's shell; returns its largest magnitude, NaN if one is NaN.
    float (*mask_state)(const float* e, const float* h, int active, float* hbar);
    void (*mask_input)(const InputCall& call);

    // m and the mask of quantized precisions: m from the scheduler's logit, and e [D] from an m that is not NaN, set up to
    // the end of the shell that contains a.
    float (*update_fraction)(float logit);
    Extent (*soften)(float m, int dim, const Softening& softening, float* e);

    // The phases of steps. All threads finish the first phase before any starts the second.
    Phase phases[kUnitCount][2];  // by unit; null if there is no second phase

    // The output layer; W is in plain panels.
    void (*output)(const PackedWeights& W, const OutputCalls& calls, Part);

    // For sampling, from n logits: the largest, NaN if one is not finite; and p_i = e^((logit_i - most) / temperature)
    // with their sum, the same bits from every table.
    float (*highest)(const float* logits, int n);
    double (*exponentials)(const float* logits, int n, double scale, double most, double* p);

    // Σ values, in any order, as fast as memory delivers them.
    float (*sum)(const float* values, std::size_t count);
};

// One table per instruction set, each from its own compilation of kernels/kernels.cpp.
namespace portable {
extern const Kernels kKernels;
}
#ifdef VCDEPLOY_X86
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx512vl {
extern const Kernels kKernels;
}
#endif

}  // namespace vcdeploy
