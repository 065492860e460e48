// The scheduler: how much of the state a step updates (docs/design.md, section 1).
//
//     m = sigmoid(u·h + v·x + b),  e_i = Thres(sigmoid(sharpness * (m*D - i))),  a = the largest i with e_i > 0
//
// The logit is summed in double (kernels.dot), and m is rounded to float once, before the mask is computed from it: the m that is
// returned determines which dimensions were active, and is the same on every instruction set. int8 and w8a8 use the same logit,
// rounded to float, but its own sigmoid (scheduler_int8.h).
#pragma once

#include "kernels/table.h"
#include "system/buffer.h"

namespace vcdeploy {

// The shape of the mask. Throws std::invalid_argument unless sharpness > 0 and 0 < epsilon < 0.5.
struct Softness {
    Softness(double sharpness, double epsilon);

    double sharpness, epsilon;
    double reach;  // dimensions on either side of m*D where the mask is neither 0 nor 1
    static constexpr int kRun = 8;
    double growth[kRun];  // e^(sharpness k): the odds k dimensions further
};

// The extent of the mask for an m that is not NaN. Instantiated for float and double, like soften().
template <class T>
Extent extent_of(T m, int dim, const Softness& softness);

// Writes the mask e [D] up to the end of the shell that contains a.
template <class T>
void soften(T m, int dim, const Softness& softness, Extent extent, T* e);

class Scheduler {
  public:
    // u, v: [dim], copied. Throws std::invalid_argument if a value is NaN or infinite.
    Scheduler(const float* u, const float* v, float b, int dim);

    // [dim], to multiply by the state and by the input.
    const float* u() const { return u_.data(); }
    const float* v() const { return v_.data(); }

    // The logit of m from both terms, and m from the logit.
    double logit(double of_state, double of_input) const { return of_state + of_input + b_; }
    static float update_fraction(double logit);

  private:
    double b_;
    Buffer<float> u_, v_;
};

}  // namespace vcdeploy
