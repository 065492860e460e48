// One node of a graph: the layer's packed weights, callable from any number of threads at once.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/sequence.h"
#include "ort_c_api.h"
#include "system/fork.h"
#include "tensors.h"
#include "weights/layer.h"

namespace vcdeploy {

// Settings of a session.
struct Settings {
    int threads = 1;                     // per step
    std::optional<Precision> precision;  // of the packed weights; by default the node's

    auto operator<=>(const Settings&) const = default;
};

// A layer and a pool of Steppers, its working memory: each call takes one and returns it.
class SharedLayer {
  public:
    SharedLayer(Unit unit, int dim, const LayerWeights& weights, Softness softness, Precision precision, int threads)
        : layer_(unit, dim, weights, precision), softness_(softness), threads_(threads) {}

    int dim() const { return layer_.dim; }
    void run(const SequenceCall& call);

  private:
    const Layer layer_;
    const Softness softness_;
    const int threads_;
    ForkMutex busy_;
    std::vector<std::unique_ptr<Stepper>> idle_;
};

class UnitKernel {
  public:
    // Packs the weights if all are constant; otherwise the first call does, and any later call whose weights differ.
    // Throws std::invalid_argument if attributes or weights are wrong.
    UnitKernel(const OrtApi& api, const OrtKernelInfo& info, Unit unit, Settings settings);

    // Throws std::invalid_argument if a shape or a weight is wrong.
    void compute(OrtKernelContext& context);

    const OrtApi& api() const { return api_; }
    Unit unit() const { return unit_; }

  private:
    static constexpr std::size_t kFirstWeight = 2, kWeights = 5;  // U, V, u, v, b, after X and H0

    // Weights that came as inputs, and their packed layer. Compare bytes, not addresses: a runtime may put other
    // weights at the same address. Comparing reads the weights once more, but packing costs far more.
    struct Remembered {
        std::vector<std::vector<float>> copies;
        std::shared_ptr<SharedLayer> layer;
    };

    std::shared_ptr<SharedLayer> packed(const std::vector<Tensor>& weights, std::int64_t D) const;
    std::shared_ptr<SharedLayer> layer_for(OrtKernelContext& context, std::int64_t D);
    Tensor input(OrtKernelContext& context, std::size_t index) const;

    const OrtApi& api_;
    const Unit unit_;
    const Settings settings_;
    const Softness softness_;
    const std::int64_t levels_;  // the attribute activation_levels, or 0
    const Precision precision_;
    std::shared_ptr<SharedLayer> constant_;  // or null
    ForkMutex changing_;
    std::shared_ptr<const Remembered> last_;
};

}  // namespace vcdeploy
