// Scheduling, masking and quantization around the kernels of a step (vcrnn.h, vcgru.h, vclstm.h).
#include "engine/step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weights/layout.h"
#include "weights/quantization.h"

namespace vcdeploy {
namespace {

void fill_with_nan(float* row, int dim) { std::fill_n(row, dim, std::numeric_limits<float>::quiet_NaN()); }

}  // namespace

Stepper::Stepper(Unit unit, int dim, Precision precision, Softness softness, const Kernels& kernels, int threads)
    : dim_(dim), padded_(rounded_up(dim, kShell)), levels_(activation_levels(dim)), softness_(softness),
      softening_{static_cast<float>(softness.sharpness), static_cast<float>(softness.epsilon)}, kernels_(kernels),
      team_(threads, precision != Precision::int8), e_(padded_), hbar_(padded_), reset_(padded_), input_(padded_),
      sums_(padded_ * gates_of(unit)), hbar_levels_(padded_), reset_levels_(padded_), input_levels_(padded_),
      row_levels_(padded_), counts_(padded_ * gates_of(unit)) {
    step_.e = e_.data();
    step_.hbar = {hbar_.data(), hbar_levels_.data(), 0, 0};
    step_.reset = {reset_.data(), reset_levels_.data(), 0, 0};
    step_.input = {input_.data(), input_levels_.data(), 0, 0};
    step_.reset_value = reset_.data();
    step_.sums = sums_.data();
    step_.counts = counts_.data();
}

// Computes hbar and the vector to multiply by V. Returns false if a value is not finite in int8.
bool Stepper::prepare(const Layer& layer, const Input& input, const Extent& extent, const float* h) {
    const int active = extent.active;
    const float* x = input.x;
    const float* e = e_.data();
    float* hbar = hbar_.data();
    float* rest = input_.data();
    for (int i = 0; i < active; ++i) hbar[i] = e[i] * h[i];
    std::fill(hbar + active, hbar + rounded_up(active, kShell), 0.0f);

    int tabulated = 0;  // columns covered by the table row
    step_.tabulated = nullptr;
    step_.tabulated_counts = nullptr;
    step_.input_begin = 0;
    step_.input_end = active;
    if (input.table) {
        const InputTable::Row row = input.table->nearest(input.token, active);
        tabulated = row.columns;
        step_.tabulated = row.sums;
        step_.tabulated_counts = row.counts;
        step_.input_begin = std::min(extent.ones, tabulated) & ~1;  // int8 takes columns in pairs
        step_.input_end = std::max(active, tabulated);
    }
    const int begin = step_.input_begin, end = step_.input_end;
    for (int i = begin; i < std::min(active, end); ++i) rest[i] = e[i] * x[i];
    std::fill(rest + std::min(active, end), rest + rounded_up(end, kPanel), 0.0f);
    if (layer.precision == Precision::int8) return quantize(input, active, tabulated);
    for (int i = begin; i < tabulated; ++i) rest[i] -= x[i];
    return true;
}

// Quantizes hbar, and xbar minus the levels already in the table row. Returns false if a value is not finite.
bool Stepper::quantize(const Input& input, int active, int tabulated) {
    const int begin = step_.input_begin, end = step_.input_end;
    float* rest = input_.data();
    const float of_state = kernels_.largest(hbar_.data(), active);
    const float of_input = input.table ? input.table->largest(input.token) : kernels_.largest(input.x, dim_);
    if (!std::isfinite(of_state) || !std::isfinite(of_input)) return false;
    set_range(step_.hbar, state_range(of_state), levels_);
    kernels_.quantize(step_.hbar, 0, active);
    step_.reset.unit = step_.hbar.unit;
    set_range(step_.input, input_range(of_input), levels_);
    kernels_.quantize(step_.input, begin, end);
    if (begin < tabulated) {
        const float* x = input.x;
        for (int i = begin; i < tabulated; ++i) rest[i] = x[i];
        const Activations row{rest, row_levels_.data(), step_.input.levels_of_one, step_.input.unit};
        kernels_.quantize(row, begin, tabulated);
        for (int i = begin; i < tabulated; ++i) step_.input.level[i] -= row.level[i];
    }
    return true;
}

float Stepper::step(const Layer& layer, const Input& input, const float* given_m, float* h, float* c) {
    const Scheduler& scheduler = layer.scheduler;
    const auto of_input = [&] {
        return input.table ? input.table->of_scheduler(input.token) : scheduler.of_input(input.x, kernels_);
    };
    const bool quantized = layer.precision == Precision::int8;
    float m;
    if (given_m)
        m = *given_m;
    else {
        const double logit = scheduler.logit(scheduler.of_state(h, kernels_), of_input());
        m = quantized ? kernels_.update_fraction(static_cast<float>(logit)) : scheduler.update_fraction(logit);
    }
    changed_ = dim_;
    if (std::isnan(m)) {
        fill_with_nan(h, dim_);
        if (c) fill_with_nan(c, dim_);
        return m;
    }
    Extent extent;
    if (quantized)
        extent = kernels_.soften(m, dim_, softening_, e_.data());
    else {
        extent = extent_of(m, dim_, softness_);
        soften(m, dim_, softness_, extent, e_.data());
    }
    changed_ = extent.active;
    if (extent.active == 0) return m;
    if (!prepare(layer, input, extent, h)) {
        fill_with_nan(h, extent.active);
        if (c) fill_with_nan(c, extent.active);
        return m;
    }

    step_.active = extent.active;
    step_.U = layer.U.view();
    step_.U_reset = layer.U_reset.view();
    step_.V = layer.V.view();
    step_.h = h;
    step_.c = c;
    const std::int64_t products = std::int64_t{2} * gates_of(layer.unit) * extent.active * extent.active;
    for (const Phase phase : kernels_.phases[static_cast<int>(layer.unit)])
        if (phase) team_.run(products, [&](Part part) { phase(step_, part); });
    return m;
}

}  // namespace vcdeploy
