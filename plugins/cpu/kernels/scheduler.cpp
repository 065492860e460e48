// The transcendental functions of the scheduler, in double.
#include "kernels/scheduler.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "weights/layout.h"

namespace vcdeploy {

Softness::Softness(double sharpness, double epsilon) : sharpness(sharpness), epsilon(epsilon) {
    if (!(sharpness > 0) || !std::isfinite(sharpness))
        throw std::invalid_argument("sharpness must be above 0, not " + std::to_string(sharpness));
    if (!(epsilon > 0 && epsilon < 0.5))
        throw std::invalid_argument("epsilon must be between 0 and 0.5, not " + std::to_string(epsilon));
    reach = std::log((1 - epsilon) / epsilon) / sharpness;
    for (int k = 0; k < kRun; ++k) growth[k] = std::exp(sharpness * k);
}

// Before the threshold, e_i is 1 / (1 + odds); i counts from 0 here. Grows with i.
static double odds(double centre, int i, const Softness& softness) {
    return std::exp(-softness.sharpness * (centre - (i + 1)));
}
static double softened(double centre, int i, const Softness& softness) { return 1 / (1 + odds(centre, i, softness)); }

template <class T>
Extent extent_of(T m, int dim, const Softness& softness) {
    const double centre = static_cast<double>(m) * dim;
    // NaN (an infinite m minus an infinite reach) counts as 0.
    const auto within = [dim](double place) { return place > 0 ? static_cast<int>(std::min(place, double(dim))) : 0; };
    // One spare dimension on each side, so that the comparisons below decide, not the rounding of `reach`.
    int ones = within(std::floor(centre - softness.reach) - 1);
    int active = within(std::ceil(centre + softness.reach) + 1);
    while (ones < active && softened(centre, ones, softness) > 1 - softness.epsilon) ++ones;
    while (active > ones && softened(centre, active - 1, softness) < softness.epsilon) --active;
    return {ones, active};
}

template <class T>
void soften(T m, int dim, const Softness& softness, Extent extent, T* e) {
    const double centre = static_cast<double>(m) * dim;
    std::fill_n(e, extent.ones, T(1));
    for (int i = extent.ones; i < extent.active; i += Softness::kRun) {  // one exponential per run
        const double first = odds(centre, i, softness);
        T run[Softness::kRun];
        for (int k = 0; k < Softness::kRun; ++k) run[k] = static_cast<T>(1 / (1 + first * softness.growth[k]));
        std::copy_n(run, std::min(Softness::kRun, extent.active - i), e + i);
    }
    std::fill(e + extent.active, e + rounded_up(extent.active, kShell), T(0));
}

template Extent extent_of(float, int, const Softness&);
template Extent extent_of(double, int, const Softness&);
template void soften(float, int, const Softness&, Extent, float*);
template void soften(double, int, const Softness&, Extent, double*);

Scheduler::Scheduler(const float* u, const float* v, float b, int dim) : b_(b), u_(dim), v_(dim) {
    bool finite = std::isfinite(b);
    for (int i = 0; i < dim; ++i) finite = finite && std::isfinite(u[i]) && std::isfinite(v[i]);
    if (!finite) throw std::invalid_argument("a weight of the scheduler (u, v or b) is NaN or infinite");
    std::copy_n(u, dim, u_.data());
    std::copy_n(v, dim, v_.data());
}

float Scheduler::update_fraction(double logit) { return static_cast<float>(1 / (1 + std::exp(-logit))); }

}  // namespace vcdeploy
