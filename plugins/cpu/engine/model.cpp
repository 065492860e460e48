// Cuts a call into pieces, from the state before to the one after each.
#include "engine/model.h"

#include <algorithm>
#include <numeric>

#include "system/denormals.h"

namespace vcdeploy {

void Model::run(const std::int64_t* tokens, int T, int B, const float* state, Logits wanted, float* logits,
                float* state_out, float* compute, const Pause& pause) {
    const std::size_t batch = B, dim = network_->dim(), vocab = network_->vocab(), stride = batch * dim;
    std::copy_n(state, network_->state_rows() * stride, state_out);
    for (int first = 0; first < B; first += kTogether) {
        const int count = std::min(kTogether, B - first);
        std::uint64_t ours = 0;  // identifies these sequences
        const auto piece = [&](int from) {
            const Holding held(turn_, pause);
            const FlushDenormals flush(!is_quantized(network_->options().precision));
            batch_.reserve(count);
            if (ours == 0 || held_ != ours) {  // otherwise no other call has worked here since the last piece
                held_ = ours = ++last_;
                which_.resize(count);
                std::iota(which_.begin(), which_.end(), 0);
                for (int n = 0; n < count; ++n) batch_.read_state(n, state_out + (first + n) * dim, stride);
            }
            const int steps = std::min(batch_.piece(count), T - from);
            const std::size_t at = from * batch + first;
            batch_.read(which_, {tokens + at, steps, batch, compute + at * network_->layers(),
                                 wanted == Logits::all ? logits + at * vocab : nullptr});
            if (wanted == Logits::last && from + steps == T) {
                batch_.compute_logits(which_);
                for (int n = 0; n < count; ++n) std::copy_n(batch_.logits(n), vocab, logits + (first + n) * vocab);
            }
            for (int n = 0; n < count; ++n) batch_.write_state(n, state_out + (first + n) * dim, stride);
            return from + steps;
        };
        for (int from = 0; from < T;) {
            from = piece(from);
            pause();
        }
    }
}

}  // namespace vcdeploy
