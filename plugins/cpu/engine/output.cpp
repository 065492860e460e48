// Decides which blocks of the output layer to compute again, and calls the kernel.
#include "engine/output.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "weights/layout.h"
#include "weights/quantization.h"

namespace vcdeploy {

OutputLayer::OutputLayer(const MatrixView& W, const float* bias, int vocab, int dim, Precision precision)
    : vocab_(vocab), dim_(dim), W_(W, vocab, dim, precision), bias_(rounded_up(vocab, kPanel)) {
    std::copy_n(bias, vocab, bias_.data());
    if (!std::all_of(bias, bias + vocab, [](float x) { return std::isfinite(x); }))
        throw std::invalid_argument("the output layer's bias holds a NaN or an infinity");
}

OutputLayer::Sequence::Sequence(const OutputLayer& layer)
    : largest_(layer.dim_), logits_(rounded_up(layer.vocab_, kPanel)) {
    const std::size_t sums = (kept_blocks(layer.dim_) + std::size_t{1}) * rounded_up(layer.vocab_, kPanel);
    const Precision precision = layer.W_.view().precision;
    const std::size_t padded = rounded_up(layer.dim_, kShell);
    if (has_byte_levels(precision))
        bytes_ = Buffer<std::int8_t>(padded);
    else if (is_quantized(precision))
        levels_ = Buffer<std::int16_t>(padded);
    if (is_quantized(precision))
        counts_ = Buffer<std::int32_t>(sums);
    else
        sums_ = Buffer<float>(sums);
}

bool OutputLayer::Sequence::quantize(Activations& h, int dim, int levels, int& changed, const Kernels& kernels) {
    largest_.change(changed);
    const float largest = largest_.of(h.value, kernels);
    if (!std::isfinite(largest)) return false;
    set_range(h, state_range(largest), levels);
    if (h.unit != unit_) changed = dim;
    unit_ = h.unit;
    kernels.quantize(h, 0, changed);
    return true;
}

void OutputLayer::run(const Input* inputs, int count, const Kernels& kernels, Team& team) const {
    const int levels = activation_levels(W_.view().precision, dim_);
    for (int from = 0; from < count; from += kTogether) {
        OutputCall calls[kTogether];
        int started = 0;
        std::int64_t columns = 0;
        for (int n = from; n < std::min(from + kTogether, count); ++n) {
            Sequence& sequence = *inputs[n].sequence;
            int changed = sequence.fresh_ ? dim_ : inputs[n].changed;
            sequence.fresh_ = false;
            Activations h{inputs[n].h, sequence.levels_.data(), sequence.bytes_.data(), 0, 0};
            if (levels && !sequence.quantize(h, dim_, levels, changed, kernels)) {
                std::fill_n(sequence.logits_.data(), vocab_, std::numeric_limits<float>::quiet_NaN());
                sequence.fresh_ = true;
                continue;
            }
            calls[started++] = {h, changed, sequence.sums_.data(), sequence.counts_.data(), sequence.logits_.data()};
            columns += changed;
        }
        const OutputCalls all{calls, started, bias_.data(), vocab_, dim_};
        team.run(vocab_ * columns * bytes_of(W_.view().precision),
                 [&](Part part) { kernels.output(W_.view(), all, part); });
    }
}

}  // namespace vcdeploy
