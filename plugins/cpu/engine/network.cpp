// Packs the weights and checks their values.
#include "engine/network.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace vcdeploy {

Network::Network(const ModelWeights& weights, const ModelOptions& options)
    : unit_(weights.unit), dim_(weights.dim), vocab_(weights.vocab), options_(options),
      embedding_(static_cast<std::size_t>(vocab_) * dim_),
      output_(weights.output, weights.bias, vocab_, dim_, options.precision) {
    for (std::size_t token = 0; token < static_cast<std::size_t>(vocab_); ++token)
        weights.embedding.read(token, embedding_.data() + token * dim_);
    if (!std::all_of(embedding_.data(), embedding_.data() + embedding_.size(),
                     [](float x) { return std::isfinite(x); }))
        throw std::invalid_argument("the embedding holds a NaN or an infinity");
    layers_.reserve(weights.layers.size());
    for (const LayerWeights& each : weights.layers) layers_.emplace_back(unit_, dim_, each, options.precision);
    const int spacing = InputTable::spacing_within(options.table_budget, unit_, dim_, vocab_);
    if (spacing)
        table_ = std::make_unique<InputTable>(weights.layers[0].V, embedding_.data(), layers_[0], vocab_, spacing,
                                              *options.kernels);
}

std::size_t Network::weight_bytes() const {
    std::size_t bytes = embedding_.bytes() + output_.bytes();
    for (const Layer& layer : layers_) bytes += layer.bytes();
    return bytes;
}

std::int64_t Network::products() const { return (std::int64_t{2} * gates_of(unit_) * layers() * dim_ + vocab_) * dim_; }

}  // namespace vcdeploy
