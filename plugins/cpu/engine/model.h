// A network that runs over given tokens and states. It keeps no state between calls; a Session does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/network.h"
#include "system/turn.h"

namespace vcdeploy {

enum class Logits { none, last, all };

class Model {
  public:
    // Throws std::invalid_argument if a weight is NaN, infinite or outside the precision's range.
    Model(const ModelWeights& weights, const ModelOptions& options)
        : network_(std::make_shared<const Network>(weights, options)), batch_(*network_) {}

    // The weights, which sessions share.
    const std::shared_ptr<const Network>& network() const { return network_; }

    // tokens [T, B], each from 0 to vocab - 1; state [S, B, D] -> logits [T, B, vocab] (of all steps), [1, B, vocab]
    // (the last) or none; state_out [S, B, D]; compute [T, B, layers] (m). Concurrent calls take turns, piece by piece.
    // Calls pause() between pieces of some milliseconds (or one step, if that takes longer) and while it waits for its
    // turn; what it throws ends the call.
    void run(const std::int64_t* tokens, int T, int B, const float* state, Logits wanted, float* logits,
             float* state_out, float* compute, const Pause& pause);

  private:
    // At most so many sequences side by side; more take turns.
    static constexpr int kTogether = 64;

    std::shared_ptr<const Network> network_;
    Turn turn_;  // guards the working memory below
    Batch batch_;
    std::vector<int> which_;
    std::uint64_t held_ = 0, last_ = 0;  // the sequences whose states batch_ holds, and the last ones that got a number
};

}  // namespace vcdeploy
