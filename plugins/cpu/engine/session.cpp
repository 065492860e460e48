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

// The logits that follow what these sequences have read; those of one that has read nothing stay as they are.
void Session::compute_logits(const std::vector<int>& which) {
    states_.compute_logits(which);
    const std::size_t vocab = network_->vocab();
    for (const int n : which)
        if (past_[n].read) std::copy_n(states_.logits(n), vocab, logits_.get() + n * vocab);
}

// Reads tokens [T, R], at most a piece.
void Session::read(const std::vector<int>& which, const std::int64_t* tokens, int T) {
    const std::size_t batch = batch_, layers = network_->layers(), count = which.size();
    if (given_.size() < T * batch) {
        given_.resize(T * batch);
        fractions_.resize(T * batch * layers);
    }
    for (int t = 0; t < T; ++t)
        for (std::size_t i = 0; i < count; ++i) given_[t * batch + which[i]] = tokens[t * count + i];
    states_.read(which, {given_.data(), T, batch, fractions_.data()});
    for (std::size_t i = 0; i < count; ++i) {
        const int n = which[i];
        std::copy_n(fractions_.data() + ((T - 1) * batch + n) * layers, layers, m_.get() + n * layers);
        Past& past = past_[n];
        for (int t = 0; t < T; ++t) past.history.add(tokens[t * count + i]);
        past.read += T;
        past.generated = 0;
    }
}

void Session::step(const std::int64_t* tokens, const Pause& pause) {
    alone(pause, [&] {
        read_pending(all_);
        read(all_, tokens, 1);
        compute_logits(all_);
    });
}

void Session::feed(const std::vector<int>& which, const std::int64_t* tokens, int T, const Pause& pause) {
    const int count = static_cast<int>(which.size());
    for (int from = 0; from < T;) {
        const int steps = std::min(states_.piece(count), T - from);
        alone(pause, [&] {
            read_pending(which);
            read(which, tokens + static_cast<std::size_t>(from) * count, steps);
        });
        from += steps;
    }
}

void Session::draw(int n, int t, int column, int columns, const Generation& generation) {
    const std::size_t at = static_cast<std::size_t>(t) * columns + column, layers = network_->layers();
    Past& past = past_[n];
    const std::uint8_t* allowed =
        generation.allowed ? generation.allowed + static_cast<std::size_t>(column) * network_->vocab() : nullptr;
    const float* logits = states_.logits(n);
    const Sampler::Drawn drawn =
        sampler_.draw(generation.sampling[column], logits, generation.uniforms[at], past.history, allowed);
    if (generation.alternatives)
        sampler_.most_likely(logits, drawn, generation.alternatives, generation.others + at * generation.alternatives,
                             generation.other_log_probabilities + at * generation.alternatives);
    pending_[n] = generation.tokens[at] = drawn.symbol;
    generation.log_probabilities[at] = drawn.log_probability;
    std::copy_n(m_.get() + n * layers, layers, generation.m + at * layers);
    past.history.add(drawn.symbol);
    ++past.read;
    ++past.generated;
    generation.lengths[column] = t + 1;
}

void Session::generate(const std::vector<int>& which, const Generation& generation, const Pause& pause) {
    const int columns = static_cast<int>(which.size());
    std::fill_n(generation.lengths, columns, 0);
    std::vector<int> active(columns), rows;  // columns that go on, and their sequences; its own: calls take turns
    std::iota(active.begin(), active.end(), 0);
    for (int from = 0; from < generation.length;) {
        alone(pause, [&] {
            for (const int n : which)
                if (past_[n].read == 0)
                    throw std::domain_error("sequence " + std::to_string(n) +
                                            " has read nothing to go on from: feed it at least one token");
            const auto ended = [&](int column) {
                const Past& past = past_[which[column]];
                return from >= generation.most[column] ||
                       past.history.ends_with(generation.sampling[column].stop, past.generated);
            };
            const int to = std::min(generation.length, from + states_.piece(static_cast<int>(active.size())));
            for (; from < to; ++from) {
                active.erase(std::remove_if(active.begin(), active.end(), ended), active.end());
                if (active.empty()) {
                    from = generation.length;
                    return;
                }
                rows.clear();
                for (const int column : active) rows.push_back(which[column]);
                read_pending(rows);
                states_.compute_logits(rows);
                for (const int column : active) draw(which[column], from, column, columns, generation);
            }
        });
    }
}

void Session::observe(const std::vector<int>& which, const Pause& pause) {
    alone(pause, [&] {
        read_pending(which);
        compute_logits(which);
    });
}

void Session::save(const std::vector<int>& which, float* state, float* m, Past* past, const Pause& pause) {
    alone(pause, [&] {
        read_pending(which);
        const std::size_t dim = network_->dim(), layers = network_->layers(), count = which.size();
        for (std::size_t i = 0; i < count; ++i) {
            states_.write_state(which[i], state + i * dim, count * dim);
            std::copy_n(m_.get() + which[i] * layers, layers, m + i * layers);
            past[i] = past_[which[i]];
        }
    });
}

void Session::restore(const std::vector<int>& which, const float* state, const float* m, const Past* past,
                      const Pause& pause) {
    alone(pause, [&] {
        const std::size_t dim = network_->dim(), layers = network_->layers(), vocab = network_->vocab();
        for (std::size_t i = 0; i < which.size(); ++i) {
            const int n = which[i];
            states_.read_state(n, state + i * dim, which.size() * dim);
            std::copy_n(m + i * layers, layers, m_.get() + n * layers);
            past_[n] = past[i];
            pending_[n] = -1;
            std::fill_n(logits_.get() + n * vocab, vocab, 0.0f);
        }
        compute_logits(which);
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
