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

// Reaches to where the sigmoid passes epsilon, even if it is wrong by 2^-18, more than its error.
Softening quantized_softening(const Softness& softness) {
    const double least = softness.epsilon - 0x1p-18;
    return {static_cast<float>(softness.sharpness), static_cast<float>(softness.epsilon),
            least > 0 ? std::log((1 - least) / least) / softness.sharpness : HUGE_VAL};
}

}  // namespace

Stepper::Slot::Slot(std::size_t padded, const UnitSpec& spec, Precision precision)
    : e(padded), hbar(padded), reset(padded), input(padded), sums(padded * spec.planes()) {
    step.e = e.data();
    step.hbar.value = hbar.data();
    step.reset.value = reset.data();
    step.input.value = input.data();
    Activations* const quantized[] = {&step.hbar, &step.reset, &step.input};
    if (has_byte_levels(precision)) {
        bytes = Buffer<std::int8_t>(padded * 3);
        for (int i = 0; i < 3; ++i) quantized[i]->level_8 = bytes.data() + padded * i;
    } else if (is_quantized(precision)) {
        levels = Buffer<std::int16_t>(padded * 3);
        for (int i = 0; i < 3; ++i) quantized[i]->level = levels.data() + padded * i;
    }
    if (is_quantized(precision)) counts = Buffer<std::int32_t>(padded * spec.planes());
    step.reset_value = reset.data();
    step.sums = sums.data();
    step.counts = counts.data();
    if (spec.resets_product) {
        step.apart = sums.data() + padded * spec.gates;
        if (counts.size()) step.apart_counts = counts.data() + padded * spec.gates;
    }
}

Stepper::Stepper(Unit unit, int dim, Precision precision, Softness softness, const Kernels& kernels, int threads)
    : spec_(spec_of(unit)), dim_(dim), padded_(rounded_up(dim, kShell)), precision_(precision),
      levels_(activation_levels(precision, dim)), softness_(softness), softening_(quantized_softening(softness)),
      kernels_(kernels), team_(threads, !is_quantized(precision)) {
    slots_.push_back(std::make_unique<Slot>(padded_, spec_, precision_));
}

// Computes hbar and the vector to multiply by V. Returns false if it is quantized and a value is not finite.
bool Stepper::prepare(const Layer& layer, const Sequence& sequence, const Extent& extent, Slot& slot) {
    const Input& input = sequence.input;
    const int active = extent.active;
    const bool quantized = is_quantized(layer.precision);
    Step& step = slot.step;
    int tabulated = 0;  // columns covered by the table row
    step.tabulated = nullptr;
    step.tabulated_counts = nullptr;
    step.input_begin = 0;
    step.input_end = active;
    if (input.table) {
        const InputTable::Row row = input.table->nearest(input.token, extent);
        tabulated = row.columns;
        step.tabulated = row.sums;
        step.tabulated_counts = row.counts;
        step.input_begin = std::min(extent.ones, tabulated) / kColumnGroup * kColumnGroup;
        step.input_end = std::max(active, tabulated);
    }
    const float of_state = kernels_.mask_state(slot.e.data(), sequence.h, active, slot.hbar.data());
    if (quantized) {
        const float of_input =
            input.table ? input.table->largest(input.token) : sequence.kept->largest_input.of(input.x, kernels_);
        if (!std::isfinite(of_state) || !std::isfinite(of_input)) return false;
        set_range(step.hbar, state_range(of_state), levels_);
        kernels_.quantize(step.hbar, 0, active);
        step.reset.unit = step.hbar.unit;
        set_range(step.input, input_range(of_input), levels_);
    }
    kernels_.mask_input({slot.e.data(), input.x, dim_, active, tabulated, step.input_begin, step.input_end,
                         slot.input.data(), step.input.level, step.input.level_8, step.input.levels_of_one});
    return true;
}

// Sets m.
void Stepper::schedule(const Layer& layer, Sequence& sequence) const {
    if (!layer.scheduler) {
        sequence.m = 1;
        return;
    }
    if (sequence.given_m) {
        sequence.m = *sequence.given_m;
        return;
    }
    const Scheduler& scheduler = *layer.scheduler;
    const Input& input = sequence.input;
    Kept& kept = *sequence.kept;
    const double of_input =
        input.table ? input.table->of_scheduler(input.token) : kept.of_input.of(scheduler.v(), input.x, kernels_);
    const double logit = scheduler.logit(kept.of_state.of(scheduler.u(), sequence.h, kernels_), of_input);
    sequence.m = is_quantized(layer.precision) ? kernels_.update_fraction(static_cast<float>(logit))
                                               : scheduler.update_fraction(logit);
}

// Computes the mask and all a step reads. Returns false if nothing is left to do.
bool Stepper::start(const Layer& layer, Sequence& sequence, Slot& slot) {
    const float m = sequence.m;
    sequence.changed = dim_;
    if (std::isnan(m)) {
        fill_with_nan(sequence.h, dim_);
        if (sequence.c) fill_with_nan(sequence.c, dim_);
        return false;
    }
    Extent extent{dim_, dim_};
    if (!layer.scheduler)
        std::fill_n(slot.e.data(), dim_, 1.0f);
    else if (is_quantized(layer.precision))
        extent = kernels_.soften(m, dim_, softening_, slot.e.data());
    else {
        extent = extent_of(m, dim_, softness_);
        soften(m, dim_, softness_, extent, slot.e.data());
    }
    sequence.changed = extent.active;
    if (extent.active == 0) return false;
    if (!prepare(layer, sequence, extent, slot)) {
        fill_with_nan(sequence.h, extent.active);
        if (sequence.c) fill_with_nan(sequence.c, extent.active);
        return false;
    }
    Step& step = slot.step;
    step.active = extent.active;
    step.U = layer.U.view();
    step.U_reset = layer.U_reset.view();
    step.V = layer.V.view();
    step.bias = layer.bias.size() ? layer.bias.data() : nullptr;
    step.apart_bias =
        step.bias ? step.bias + static_cast<std::size_t>(rounded_up(dim_, kPanel)) * spec_.gates : nullptr;
    step.h = sequence.h;
    step.c = sequence.c;
    return true;
}

void Stepper::step_together(const Layer& layer, Sequence* const* sequences, int count) {
    const Step* steps[kMostSteps];
    int started = 0;
    std::int64_t bytes = 0;
    for (int n = 0; n < count; ++n) {
        if (static_cast<int>(slots_.size()) == started)
            slots_.push_back(std::make_unique<Slot>(padded_, spec_, precision_));
        const Step& step = slots_[started]->step;
        if (!start(layer, *sequences[n], *slots_[started])) continue;
        steps[started++] = &step;
        const int columns = step.active + std::max(0, step.input_end - step.input_begin);  // of U and of V
        bytes += std::int64_t{spec_.gates} * step.active * columns * bytes_of(layer.precision);
    }
    if (started == 0) return;
    std::sort(steps, steps + started, [](const Step* a, const Step* b) { return a->active > b->active; });
    for (const Phase phase : kernels_.phases[static_cast<int>(layer.unit)])
        if (phase) team_.run(bytes, [&](Part part) { phase(Steps{steps, started}, part); });
}

void Stepper::step(const Layer& layer, Sequence* sequences, int count) {
    order_.clear();
    for (int n = 0; n < count; ++n) {
        sequences[n].kept->change_input(sequences[n].input.changed);
        schedule(layer, sequences[n]);
        order_.push_back(&sequences[n]);
    }
    // Sequences with a similar a share most. NaN goes first: comparisons with it would confuse the sort.
    const auto key = [](const Sequence* each) { return std::isnan(each->m) ? HUGE_VALF : each->m; };
    if (count > 1)
        std::sort(order_.begin(), order_.end(), [&](const Sequence* a, const Sequence* b) { return key(a) > key(b); });
    for (int from = 0; from < count; from += kMostSteps)
        step_together(layer, order_.data() + from, std::min(kMostSteps, count - from));
    for (int n = 0; n < count; ++n) sequences[n].kept->of_state.change(sequences[n].changed);
}

}  // namespace vcdeploy
