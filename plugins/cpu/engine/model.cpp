// Runs the layers over given tokens; generate.cpp samples its own.
#include "engine/model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "weights/layout.h"

namespace vcdeploy {

Model::Model(const ModelWeights& weights, const ModelOptions& options)
    : unit_(weights.unit), dim_(weights.dim), vocab_(weights.vocab),
      embedding_(static_cast<std::size_t>(vocab_) * dim_),
      stepper_(unit_, dim_, options.precision, options.softness, *options.kernels, options.threads),
      output_(weights.output, weights.bias, vocab_, dim_, options.precision),
      state_(stepper_.padded() * weights.layers.size() * spec_of(unit_).state_rows), rows_(stepper_.padded() * kChunk) {
    for (std::size_t token = 0; token < static_cast<std::size_t>(vocab_); ++token)
        weights.embedding.read(token, embedding_.data() + token * dim_);
    if (!std::all_of(embedding_.data(), embedding_.data() + embedding_.size(),
                     [](float x) { return std::isfinite(x); }))
        throw std::invalid_argument("the embedding holds a NaN or an infinity");

    const auto layers = static_cast<std::int64_t>(weights.layers.size());
    const std::int64_t step = (2 * gates_of(unit_) * layers * dim_ + vocab_) * dim_;
    chunk_ = static_cast<int>(std::clamp<std::int64_t>(kPiece / step, 1, kChunk));

    layers_.reserve(weights.layers.size());
    for (const LayerWeights& each : weights.layers) layers_.emplace_back(unit_, dim_, each, options.precision);
    const int spacing = InputTable::spacing_within(options.table_budget, unit_, dim_, vocab_);
    if (spacing)
        table_ = std::make_unique<InputTable>(weights.layers[0].V, embedding_.data(), layers_[0], vocab_, spacing,
                                              *options.kernels);
}

std::size_t Model::weight_bytes() const {
    std::size_t bytes = embedding_.bytes() + output_.bytes();
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

// Runs at most chunk_ tokens through all layers. Token t is tokens[t * stride]; its m go to compute + t *
// compute_stride, the last layer's outputs to rows_.
void Model::advance(const std::int64_t* tokens, std::size_t stride, int count, float* compute,
                    std::size_t compute_stride) {
    const std::size_t padded = stepper_.padded();
    for (int l = 0; l < layers(); ++l) {
        float* h = state_.data() + padded * l * spec_of(unit_).state_rows;
        float* c = spec_of(unit_).has_cell() ? h + padded : nullptr;
        for (int t = 0; t < count; ++t) {
            float* row = rows_.data() + t * padded;
            Stepper::Sequence sequence{{row}, nullptr, h, c};
            if (l == 0) {
                const std::int64_t token = tokens[t * stride];
                sequence.input = {embedding_.data() + static_cast<std::size_t>(token) * dim_, table_.get(), token};
            }
            stepper_.step(layers_[l], &sequence, 1);
            compute[t * compute_stride + l] = sequence.m;
            std::copy_n(h, padded, row);
            changed_[t] = sequence.changed;
        }
    }
}

void Model::run(const std::int64_t* tokens, int T, int B, const float* state, float* logits, float* state_out,
                float* compute, const Pause& pause) {
    const std::size_t batch = B, stride = batch * dim_;
    std::copy_n(state, state_rows() * stride, state_out);
    for (std::size_t n = 0; n < batch; ++n)
        for (int from = 0; from < T; from += chunk_)
            alone(pause, state_out + n * dim_, stride, [&] {
                const int count = std::min(chunk_, T - from);
                const std::size_t first = from * batch + n;
                advance(tokens + first, batch, count, compute + first * layers(), batch * layers());
                for (int t = 0; t < count; ++t) {
                    output_.run(rows_.data() + t * stepper_.padded(), changed_[t], kernels(), stepper_.team());
                    std::copy_n(output_.logits(), vocab_, logits + (first + t * batch) * vocab_);
                }
            });
}

}  // namespace vcdeploy
