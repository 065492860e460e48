// The scheduler: how much of the state a step updates (docs/design.md, section 1).
//
//     m = sigmoid(u·h + v·x + b),  e_i = Thres(sigmoid(sharpness * (m*D - i))),  a = the largest i with e_i > 0
//
// The logit is summed in double and m is rounded to float once, before the mask is made of it: an m that was put out
// says exactly which dimensions were active, and is the same from every instruction set. int8 has a sigmoid of its own for
// both (scheduler_int8.h); its logit is the same, rounded to float.
#pragma once

#include "kernels/table.h"
#include "system/buffer.h"

namespace vcdeploy {

// The shape of the mask. Throws std::invalid_argument unless sharpness > 0 and 0 < epsilon < 0.5.
struct Softness {
    Softness(double sharpness, double epsilon);

    double sharpness, epsilon;
    double reach;  // dimensions on either side of m*D that are neither 0 nor 1
    static constexpr int kRun = 8;
    double growth[kRun];  // e^(sharpness k): of e_i, the mask k dimensions further
};

// How far the mask of an m reaches that is not NaN. For float and double, as soften().
template <class T>
Extent extent_of(T m, int dim, const Softness& softness);

// The mask itself: e [D], set up to the end of a's shell.
template <class T>
void soften(T m, int dim, const Softness& softness, Extent extent, T* e);

class Scheduler {
  public:
    // u, v: [dim], copied. Throws std::invalid_argument where one of the numbers is NaN or infinite.
    Scheduler(const float* u, const float* v, float b, int dim);

    // u·h of a state h [dim], v·x of an input x [dim].
    double of_state(const float* h, const Kernels& kernels) const { return kernels.dot(u_.data(), h, dim_); }
    double of_input(const float* x, const Kernels& kernels) const { return kernels.dot(v_.data(), x, dim_); }

    // The logit of m, from both, and m itself.
    double logit(double of_state, double of_input) const { return of_state + of_input + b_; }
    static float update_fraction(double logit);

  private:
    int dim_;
    double b_;
    Buffer<float> u_, v_;
};

}  // namespace vcdeploy
