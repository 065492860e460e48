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

OutputLayer::Sequence::Sequence(const OutputLayer& layer) : logits_(rounded_up(layer.vocab_, kPanel)) {
    const std::size_t blocks = output_blocks(layer.dim_) + 1, sums = blocks * rounded_up(layer.vocab_, kPanel);
    if (layer.W_.view().precision == Precision::int8) {
        counts_ = Buffer<std::int32_t>(sums);
        levels_ = Buffer<std::int16_t>(rounded_up(layer.dim_, kShell));
        largest_ = Buffer<float>(blocks);
    } else
        sums_ = Buffer<float>(sums);
}

bool OutputLayer::Sequence::quantize(const float* h, int dim, int& changed, const Kernels& kernels) {
    for (int block = 0; block < output_blocks(changed); ++block) {
        const int begin = block * kOutputBlock;
        largest_[block] = kernels.largest(h + begin, std::min(kOutputBlock, dim - begin));
    }
    float largest = 0;
    for (int block = 0; block < output_blocks(dim); ++block) {
        if (!std::isfinite(largest_[block])) return false;
        largest = std::max(largest, largest_[block]);
    }
    Activations x{h, levels_.data(), 0, 0};
    set_range(x, state_range(largest), activation_levels(dim));
    if (x.unit != unit_) changed = dim;
    unit_ = x.unit;
    kernels.quantize(x, 0, changed);
    return true;
}

void OutputLayer::run(const Input* inputs, int count, const Kernels& kernels, Team& team) const {
    const bool quantized = W_.view().precision == Precision::int8;
    for (int from = 0; from < count; from += kTogether) {
        OutputCall calls[kTogether];
        int started = 0;
        std::int64_t columns = 0;
        for (int n = from; n < std::min(from + kTogether, count); ++n) {
            Sequence& sequence = *inputs[n].sequence;
            int changed = sequence.fresh_ ? dim_ : inputs[n].changed;
            sequence.fresh_ = false;
            if (quantized && !sequence.quantize(inputs[n].h, dim_, changed, kernels)) {
                std::fill_n(sequence.logits_.data(), vocab_, std::numeric_limits<float>::quiet_NaN());
                sequence.fresh_ = true;
                continue;
            }
            calls[started++] = {inputs[n].h,           sequence.levels_.data(), sequence.unit_,         changed,
                                sequence.sums_.data(), sequence.counts_.data(), sequence.logits_.data()};
            columns += changed;
        }
        const OutputCalls all{calls, started, bias_.data(), vocab_, dim_};
        team.run(std::int64_t{vocab_} * columns, [&](Part part) { kernels.output(W_.view(), all, part); });
    }
}

}  // namespace vcdeploy
