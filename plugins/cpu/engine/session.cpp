// Reads given tokens, or the newest of each sequence and samples the next one, and so on.
#include "engine/session.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "system/denormals.h"

namespace vcdeploy {

Session::Session(std::shared_ptr<const Network> network, int batch)
    : network_(std::move(network)), batch_(batch), states_(*network_), sampler_(network_->vocab(), network_->kernels()),
      past_(batch), pending_(batch, -1), all_(batch),
      logits_(new float[static_cast<std::size_t>(batch) * network_->vocab()]()),
      m_(new float[static_cast<std::size_t>(batch) * network_->layers()]()) {
    states_.reserve(batch);
    unread_.reserve(batch);
    std::iota(all_.begin(), all_.end(), 0);
}

// A piece of work, then a pause.
template <class Work>
void Session::alone(const Pause& pause, const Work& work) {
    {
        const Holding held(turn_, pause);
        const FlushDenormals flush(!is_quantized(network_->options().precision));
        work();
    }
    pause();
}

void Session::read_pending(const std::vector<int>& which) {
    unread_.clear();
    for (const int n : which)
        if (pending_[n] >= 0) unread_.push_back(n);
    if (unread_.empty()) return;
    states_.read(unread_, {pending_.data(), 1, static_cast<std::size_t>(batch_), m_.get()});
    for (const int n : unread_) pending_[n] = -1;
}

// The logits that follow what every sequence has read; those of one that has read nothing stay as they are.
void Session::compute_logits() {
    states_.compute_logits(all_);
    const std::size_t vocab = network_->vocab();
    for (int n = 0; n < batch_; ++n)
        if (past_[n].read) std::copy_n(states_.logits(n), vocab, logits_.get() + n * vocab);
}

void Session::remember(const std::int64_t* tokens, int T) {
    for (int n = 0; n < batch_; ++n) {
        Past& past = past_[n];
        for (int t = 0; t < T; ++t) past.history.add(tokens[static_cast<std::size_t>(t) * batch_ + n]);
        past.read += T;
        past.generated = 0;
    }
}

void Session::step(const std::int64_t* tokens, const Pause& pause) {
    alone(pause, [&] {
        read_pending(all_);
        states_.read(all_, {tokens, 1, static_cast<std::size_t>(batch_), m_.get()});
        remember(tokens, 1);
        compute_logits();
    });
}

void Session::feed(const std::int64_t* tokens, int T, const Pause& pause) {
    const std::size_t row = static_cast<std::size_t>(batch_) * network_->layers();
    std::vector<float> m(row * std::min(T, states_.piece(batch_)));
    for (int from = 0; from < T;) {
        const int steps = std::min(states_.piece(batch_), T - from);
        alone(pause, [&] {
            read_pending(all_);
            const std::int64_t* piece = tokens + static_cast<std::size_t>(from) * batch_;
            states_.read(all_, {piece, steps, static_cast<std::size_t>(batch_), m.data()});
            remember(piece, steps);
            std::copy_n(m.data() + (steps - 1) * row, row, m_.get());
        });
        from += steps;
    }
}

void Session::draw(int n, int t, const Generation& generation) {
    const std::size_t at = static_cast<std::size_t>(t) * batch_ + n, layers = network_->layers();
    Past& past = past_[n];
    const std::uint8_t* allowed =
        generation.allowed ? generation.allowed + static_cast<std::size_t>(n) * network_->vocab() : nullptr;
    const Sampler::Drawn drawn =
        sampler_.draw(generation.sampling[n], states_.logits(n), generation.uniforms[at], past.history, allowed);
    pending_[n] = generation.tokens[at] = drawn.symbol;
    generation.log_probabilities[at] = drawn.log_probability;
    std::copy_n(m_.get() + n * layers, layers, generation.m + at * layers);
    past.history.add(drawn.symbol);
    ++past.read;
    ++past.generated;
    generation.lengths[n] = t + 1;
}

void Session::generate(const Generation& generation, const Pause& pause) {
    std::fill_n(generation.lengths, batch_, 0);
    std::vector<int> active;  // its own: calls take turns
    for (int from = 0; from < generation.length;) {
        alone(pause, [&] {
            if (from == 0) active = all_;
            for (const int n : active)
                if (past_[n].read == 0)
                    throw std::domain_error("sequence " + std::to_string(n) +
                                            " has read nothing to go on from: feed it at least one token");
            const auto ended = [&](int n) {
                return past_[n].history.ends_with(generation.sampling[n].stop, past_[n].generated);
            };
            const int to = std::min(generation.length, from + states_.piece(static_cast<int>(active.size())));
            for (; from < to; ++from) {
                active.erase(std::remove_if(active.begin(), active.end(), ended), active.end());
                if (active.empty()) {
                    from = generation.length;
                    return;
                }
                read_pending(active);
                states_.compute_logits(active);
                for (const int n : active) draw(n, from, generation);
            }
        });
    }
}

void Session::observe(const Pause& pause) {
    alone(pause, [&] {
        read_pending(all_);
        compute_logits();
    });
}

void Session::save(float* state, float* m, Past* past, const Pause& pause) {
    alone(pause, [&] {
        read_pending(all_);
        const std::size_t dim = network_->dim();
        for (int n = 0; n < batch_; ++n) states_.write_state(n, state + n * dim, batch_ * dim);
        std::copy_n(m_.get(), static_cast<std::size_t>(batch_) * network_->layers(), m);
        std::copy(past_.begin(), past_.end(), past);
    });
}

void Session::restore(const float* state, const float* m, const Past* past, const Pause& pause) {
    alone(pause, [&] {
        const std::size_t dim = network_->dim();
        for (int n = 0; n < batch_; ++n) states_.read_state(n, state + n * dim, batch_ * dim);
        std::copy_n(m, static_cast<std::size_t>(batch_) * network_->layers(), m_.get());
        std::copy_n(past, batch_, past_.begin());
        std::fill(pending_.begin(), pending_.end(), -1);
        std::fill_n(logits_.get(), static_cast<std::size_t>(batch_) * network_->vocab(), 0.0f);
        compute_logits();
    });
}

void Session::reset(const std::vector<int>& which, const Pause& pause) {
    alone(pause, [&] {
        const std::vector<float> zeros(static_cast<std::size_t>(network_->state_rows()) * network_->dim());
        const std::size_t vocab = network_->vocab(), layers = network_->layers();
        for (const int n : which) {
            states_.read_state(n, zeros.data(), network_->dim());
            past_[n] = Past();
            pending_[n] = -1;
            std::fill_n(logits_.get() + n * vocab, vocab, 0.0f);
            std::fill_n(m_.get() + n * layers, layers, 0.0f);
        }
    });
}

}  // namespace vcdeploy
