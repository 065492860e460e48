// Runs the layers over given tokens; generate.cpp samples its own.
#include "engine/model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "system/denormals.h"
#include "weights/layout.h"
#include "weights/quantization.h"

namespace vcdeploy {

Model::Model(const ModelWeights& weights, const ModelOptions& options)
    : unit_(weights.unit), dim_(weights.dim), vocab_(weights.vocab),
      embedding_(static_cast<std::size_t>(vocab_) * dim_), output_(weights.output, vocab_, dim_, options.precision),
      bias_(rounded_up(vocab_, kPanel)),
      stepper_(unit_, dim_, options.precision, options.softness, *options.kernels, options.threads),
      state_(stepper_.padded() * weights.layers.size() * spec_of(unit_).state_rows), rows_(stepper_.padded() * kChunk),
      row_levels_(stepper_.padded() * kOutputTogether),
      logits_(static_cast<std::size_t>(kOutputTogether) * rounded_up(vocab_, kPanel)) {
    for (std::size_t token = 0; token < static_cast<std::size_t>(vocab_); ++token)
        weights.embedding.read(token, embedding_.data() + token * dim_);
    std::copy_n(weights.bias, vocab_, bias_.data());
    const auto finite = [](const Buffer<float>& values) {
        return std::all_of(values.data(), values.data() + values.size(), [](float x) { return std::isfinite(x); });
    };
    if (!finite(embedding_)) throw std::invalid_argument("the embedding holds a NaN or an infinity");
    if (!finite(bias_)) throw std::invalid_argument("the output layer's bias holds a NaN or an infinity");

    layers_.reserve(weights.layers.size());
    for (const LayerWeights& each : weights.layers) layers_.emplace_back(unit_, dim_, each, options.precision);
    const int spacing = InputTable::spacing_within(options.table_budget, unit_, dim_, vocab_);
    if (spacing)
        table_ = std::make_unique<InputTable>(weights.layers[0].V, embedding_.data(), layers_[0], vocab_, spacing,
                                              *options.kernels);
}

std::size_t Model::weight_bytes() const {
    std::size_t bytes = embedding_.bytes() + output_.bytes() + bias_.bytes();
    for (const Layer& layer : layers_) bytes += layer.bytes();
    return bytes;
}

// Row s of the state starts at state + s * stride.
void Model::read_state(const float* state, std::size_t stride) {
    for (int s = 0; s < state_rows(); ++s) std::copy_n(state + s * stride, dim_, state_.data() + s * stepper_.padded());
}

void Model::write_state(float* state, std::size_t stride) const {
    for (int s = 0; s < state_rows(); ++s) std::copy_n(state_.data() + s * stepper_.padded(), dim_, state + s * stride);
}

// Runs at most kChunk tokens through all layers. Token t is tokens[t * stride]; its m go to compute + t *
// compute_stride, the last layer's outputs to rows_.
void Model::advance(const std::int64_t* tokens, std::size_t stride, int count, float* compute,
                    std::size_t compute_stride) {
    const std::size_t padded = stepper_.padded();
    for (int l = 0; l < layers(); ++l) {
        float* h = state_.data() + padded * l * spec_of(unit_).state_rows;
        float* c = spec_of(unit_).has_cell() ? h + padded : nullptr;
        for (int t = 0; t < count; ++t) {
            float* row = rows_.data() + t * padded;
            Stepper::Input input{row};
            if (l == 0) {
                const std::int64_t token = tokens[t * stride];
                input = {embedding_.data() + static_cast<std::size_t>(token) * dim_, table_.get(), token};
            }
            compute[t * compute_stride + l] = stepper_.step(layers_[l], input, nullptr, h, c);
            std::copy_n(h, padded, row);
        }
    }
}

// Writes the logits of at most kOutputTogether rows to logits_.
void Model::read_out(int first, int count) {
    const std::size_t padded = stepper_.padded();
    const float* rows = rows_.data() + first * padded;
    Activations levels[kOutputTogether];
    if (output_.view().precision == Precision::int8)
        for (int t = 0; t < count; ++t) {
            levels[t] = {rows + t * padded, row_levels_.data() + t * padded, 0, 0};
            set_range(levels[t], state_range(kernels().largest(levels[t].value, dim_)), activation_levels(dim_));
            kernels().quantize(levels[t], 0, dim_);
        }
    const OutputCall call{count,  rows,           padded,
                          levels, dim_,           bias_.data(),
                          vocab_, logits_.data(), static_cast<std::size_t>(rounded_up(vocab_, kPanel))};
    stepper_.team().run(std::int64_t{vocab_} * dim_ * count,
                        [&](Part part) { kernels().output(output_.view(), call, part); });
}

void Model::run(const std::int64_t* tokens, int T, int B, const float* state, float* logits, float* state_out,
                float* compute) {
    const std::lock_guard<std::mutex> alone(busy_);
    const FlushDenormals flush(layers_[0].precision != Precision::int8);
    const std::size_t batch = B, stride = batch * dim_;
    for (std::size_t n = 0; n < batch; ++n) {
        read_state(state + n * dim_, stride);
        for (int from = 0; from < T; from += kChunk) {
            const int count = std::min(kChunk, T - from);
            const std::size_t first = from * batch + n;
            advance(tokens + first, batch, count, compute + first * layers(), batch * layers());
            for (int t = 0; t < count; t += kOutputTogether) {
                const int together = std::min(kOutputTogether, count - t);
                read_out(t, together);
                for (int i = 0; i < together; ++i)
                    std::copy_n(logits_.data() + static_cast<std::size_t>(i) * rounded_up(vocab_, kPanel), vocab_,
                                logits + (first + (t + i) * batch) * vocab_);
            }
        }
        write_state(state_out + n * dim_, stride);
    }
}

}  // namespace vcdeploy
