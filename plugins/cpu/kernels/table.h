// What is compiled once for every instruction set: a table of functions, and the plain records they take.
//
// A record here holds pointers and sizes only. Whoever calls owns the memory; all arrays of floats start on a cache
// line and reach to the next multiple of 32 past D, and what lies past D is zero.
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

// The mask of int8 (scheduler_int8.h), as floats.
struct Softening {
    float sharpness;
    float epsilon;
};

struct PackedWeights {
    Precision precision;
    const void* weights;
    const float* scales;  // int8: [panel][gate][16]
};

// A vector that is multiplied by a matrix; for int8 weights as whole numbers (quantization.h): level is value * levels_of_one,
// rounded to the nearest, half to even, and stands for level * unit.
struct Activations {
    const float* value;   // [D]
    std::int16_t* level;  // [D]
    float levels_of_one;
    float unit;
};

// One step of one sequence, after its scheduler has spoken (docs/design.md, section 1).
struct Step {
    int active;      // a: rows that change, columns that count
    const float* e;  // [D], the mask; 0 from a to the end of a's shell
    Activations hbar;
    Activations reset;   // VCGRU: r ⊙ hbar, made by its first phase and read by its second
    float* reset_value;  // [D], its values
    Activations input;   // xbar; with a table, what the table's row lacks of it
    int input_begin;     // the columns of V to multiply by `input`
    int input_end;
    const float* tabulated;                // V x up to a column, [panel][gate][16], or null
    const std::int32_t* tabulated_counts;  // the same in int8, in levels of V and x
    PackedWeights U;                       // all gates that read hbar
    PackedWeights U_reset;                 // VCGRU: the gate that reads r ⊙ hbar
    PackedWeights V;
    float* sums;           // [panel][gate][16], U hbar + V xbar while it grows
    std::int32_t* counts;  // the same shape, for int8
    float* h;              // [D], changed in place up to a
    float* c;              // [D], VCLSTM
};

// A thread's part of the rows: panels `member`, `member` + `members`, … Every row's sum is made by one thread in one
// order, so that the result does not depend on how many there are.
struct Part {
    int member;
    int members;
};

using Phase = void (*)(const Step&, Part);

constexpr int kOutputTogether = 3;  // tokens that share a read of the output layer

// logits = W h + bias for some tokens, kOutputTogether at most.
struct OutputCall {
    int tokens;
    const float* h;  // [tokens, dim], a row every h_stride
    std::size_t h_stride;
    const Activations* levels;  // [tokens], for int8: of h
    int dim;
    const float* bias;  // [count, rounded up to a panel]
    int count;          // rows of W
    float* logits;      // [tokens, count rounded up to a panel], a row every logits_stride
    std::size_t logits_stride;
};

constexpr int kReadTogether = 128;  // floats: what `sum` takes is a multiple of them

struct Kernels {
    const char* name;

    // Σ a_i b_i in double, the same bits from every table: products of floats are exact in double, and element i
    // always goes to running sum i mod 16.
    double (*dot)(const float* a, const float* b, int n);

    // The largest magnitude among n values: NaN where one is NaN, infinite where one is.
    float (*largest)(const float* values, int n);

    // Sets levels [begin, end) of x, and the others of their panels, whose values are finite.
    void (*quantize)(const Activations& x, int begin, int end);

    // m and the mask in int8, with its own sigmoid: m from the scheduler's sum; from an m that is not NaN e [D], set up to
    // the end of a's shell.
    float (*update_fraction)(float logit);
    Extent (*soften)(float m, int dim, const Softening& softening, float* e);

    // What a step does with its rows; all threads finish the first phase before any starts the second.
    Phase phases[kUnitCount][2];  // by unit; null where there is no second

    // W in plain panels.
    void (*output)(const PackedWeights& W, const OutputCall& call, Part);

    // Σ values, in any order: to read them, as fast as they come.
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
#endif

}  // namespace vcdeploy
