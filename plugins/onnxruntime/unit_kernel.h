// One node of a graph: a layer's packed weights, and calls of it, from any number of threads at once.
#pragma once

#include <onnxruntime_c_api.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "layer.h"
#include "sequence.h"
#include "tensors.h"

namespace vcdeploy {

// How the nodes of a session work.
struct Settings {
    int threads = 1;                     // that share the rows of a step
    std::optional<Precision> precision;  // of the packed weights; unless given, what the node says

    auto operator<=>(const Settings&) const = default;
};

// A layer with as much working memory as calls have needed at once: each takes a Stepper, and leaves it for the next.
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
    std::mutex busy_;
    std::vector<std::unique_ptr<Stepper>> idle_;
};

class UnitKernel {
  public:
    // Packs the weights where all of them are constant; else they are packed when they first come, and again whenever
    // they differ. Throws std::invalid_argument where attributes or weights are wrong.
    UnitKernel(const OrtApi& api, const OrtKernelInfo& info, Unit unit, Settings settings);

    // Throws std::invalid_argument where a shape or a weight is wrong.
    void compute(OrtKernelContext& context);

    const OrtApi& api() const { return api_; }
    Unit unit() const { return unit_; }

  private:
    static constexpr std::size_t kFirstWeight = 2, kWeights = 5;  // U, V, u, v, b, after X and H0

    // Weights that came as inputs, and the layer made of them. Whether they are still the same only their bytes
    // tell: a runtime may put others at the same address. Comparing reads them once more; packing costs far more.
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
    std::mutex changing_;
    std::shared_ptr<const Remembered> last_;
};

}  // namespace vcdeploy
