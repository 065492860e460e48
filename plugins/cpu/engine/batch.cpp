// Layer by layer within a piece, so that the weights of a layer stay in the cache; step by step within a layer.
#include "engine/batch.h"

#include <algorithm>

namespace vcdeploy {

Batch::Batch(const Network& network)
    : network_(network), chunk_(static_cast<int>(std::clamp<std::int64_t>(kPiece / network.products(), 1, kRows))),
      stepper_(network.unit(), network.dim(), network.options().precision, network.options().softness,
               network.kernels(), network.options().threads) {}

void Batch::reserve(int count) {
    while (static_cast<int>(states_.size()) < count) {
        outputs_.emplace_back(network_.output());
        stale_.push_back(network_.dim());
        for (int l = 0; l < network_.layers(); ++l) kept_.emplace_back(network_.dim());
        states_.emplace_back(stepper_.padded() * network_.state_rows());
    }
    changed_.resize(std::max<std::size_t>(kRows, states_.size()));
    sequences_.resize(states_.size());
    inputs_.resize(states_.size());
}

void Batch::read_state(int n, const float* state, std::size_t stride) {
    for (int s = 0; s < network_.state_rows(); ++s) std::copy_n(state + s * stride, network_.dim(), this->state(n, s));
    for (int l = 0; l < network_.layers(); ++l) kept(n, l).forget(network_.dim());
    outputs_[n].reset();
}

void Batch::write_state(int n, float* state, std::size_t stride) const {
    for (int s = 0; s < network_.state_rows(); ++s)
        std::copy_n(states_[n].data() + s * stepper_.padded(), network_.dim(), state + s * stride);
}

int Batch::piece(int count) const { return std::max(1, chunk_ / std::max(1, count)); }

void Batch::read_layer(int l, const std::vector<int>& which, const Reading& reading, bool keep_rows) {
    const std::size_t padded = stepper_.padded(), layers = network_.layers();
    const int count = static_cast<int>(which.size()), first_row = l * network_.rows_of_layer();
    for (int t = 0; t < reading.steps; ++t) {
        for (int i = 0; i < count; ++i) {
            const int n = which[i];
            Stepper::Sequence& sequence = sequences_[i];
            float* c = network_.has_cell() ? state(n, first_row + 1) : nullptr;
            sequence = {{}, &kept(n, l), nullptr, state(n, first_row), c};
            if (l > 0) {
                sequence.input = {rows_.data() + (t * count + i) * padded, changed_[t * count + i]};
                continue;
            }
            const std::int64_t token = reading.tokens[t * reading.batch + n];
            sequence.input = {network_.embedding(token), network_.dim(), network_.table(), token};
        }
        stepper_.step(network_.layer(l), sequences_.data(), count);
        for (int i = 0; i < count; ++i) {
            reading.compute[(t * reading.batch + which[i]) * layers + l] = sequences_[i].m;
            changed_[t * count + i] = sequences_[i].changed;
            if (keep_rows) std::copy_n(sequences_[i].h, padded, rows_.data() + (t * count + i) * padded);
        }
    }
}

void Batch::read(const std::vector<int>& which, const Reading& reading) {
    const int count = static_cast<int>(which.size());
    const std::size_t rows = static_cast<std::size_t>(reading.steps) * count;
    const bool keeps_rows = network_.layers() > 1 || reading.logits;
    if (keeps_rows && rows_.size() < rows * stepper_.padded()) rows_ = Buffer<float>(rows * stepper_.padded());
    for (int l = 0; l < network_.layers(); ++l)
        read_layer(l, which, reading, l + 1 < network_.layers() || reading.logits);
    for (int t = 0; t < reading.steps; ++t) {
        for (int i = 0; i < count; ++i) {
            int& stale = stale_[which[i]];
            stale = std::max(stale, changed_[t * count + i]);
            if (!reading.logits) continue;
            inputs_[i] = {&outputs_[which[i]], rows_.data() + (t * count + i) * stepper_.padded(), stale};
            stale = 0;
        }
        if (!reading.logits) continue;
        network_.output().run(inputs_.data(), count, network_.kernels(), stepper_.team());
        for (const int n : which)
            std::copy_n(outputs_[n].logits(), network_.vocab(),
                        reading.logits + (t * reading.batch + n) * network_.vocab());
    }
}

void Batch::compute_logits(const std::vector<int>& which) {
    const int last = (network_.layers() - 1) * network_.rows_of_layer();
    for (std::size_t i = 0; i < which.size(); ++i) {
        inputs_[i] = {&outputs_[which[i]], state(which[i], last), stale_[which[i]]};
        stale_[which[i]] = 0;
    }
    network_.output().run(inputs_.data(), static_cast<int>(which.size()), network_.kernels(), stepper_.team());
}

}  // namespace vcdeploy
