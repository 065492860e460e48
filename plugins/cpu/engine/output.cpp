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
    : vocab_(vocab), dim_(dim), W_(W, vocab, dim, precision), bias_(rounded_up(vocab, kPanel)),
      logits_(rounded_up(vocab, kPanel)) {
    std::copy_n(bias, vocab, bias_.data());
    if (!std::all_of(bias, bias + vocab, [](float x) { return std::isfinite(x); }))
        throw std::invalid_argument("the output layer's bias holds a NaN or an infinity");
    const std::size_t blocks = output_blocks(dim) + 1, sums = blocks * rounded_up(vocab, kPanel);
    if (precision == Precision::int8) {
        counts_ = Buffer<std::int32_t>(sums);
        levels_ = Buffer<std::int16_t>(rounded_up(dim, kShell));
        largest_ = Buffer<float>(blocks);
    } else
        sums_ = Buffer<float>(sums);
}

bool OutputLayer::quantize(const float* h, int& changed, const Kernels& kernels) {
    for (int block = 0; block < output_blocks(changed); ++block) {
        const int begin = block * kOutputBlock;
        largest_[block] = kernels.largest(h + begin, std::min(kOutputBlock, dim_ - begin));
    }
    float largest = 0;
    for (int block = 0; block < output_blocks(dim_); ++block) {
        if (!std::isfinite(largest_[block])) return false;
        largest = std::max(largest, largest_[block]);
    }
    Activations x{h, levels_.data(), 0, 0};
    set_range(x, state_range(largest), activation_levels(dim_));
    if (x.unit != unit_) changed = dim_;
    unit_ = x.unit;
    kernels.quantize(x, 0, changed);
    return true;
}

void OutputLayer::run(const float* h, int changed, const Kernels& kernels, Team& team) {
    if (fresh_) changed = dim_;
    fresh_ = false;
    const bool quantized = W_.view().precision == Precision::int8;
    if (quantized && !quantize(h, changed, kernels)) {
        std::fill_n(logits_.data(), vocab_, std::numeric_limits<float>::quiet_NaN());
        fresh_ = true;
        return;
    }
    const OutputCall call{h,      levels_.data(), unit_,          dim_,          changed, bias_.data(),
                          vocab_, sums_.data(),   counts_.data(), logits_.data()};
    team.run(std::int64_t{vocab_} * changed, [&](Part part) { kernels.output(W_.view(), call, part); });
}

}  // namespace vcdeploy
