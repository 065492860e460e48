// Packs the gates that read the same input together.
#include "weights/layer.h"

#include <cmath>
#include <stdexcept>

#include "weights/layout.h"

namespace vcdeploy {
namespace {

Buffer<float> packed_bias(const UnitSpec& spec, int dim, const float* bias) {
    if (!bias) return {};
    Buffer<float> packed(static_cast<std::size_t>(rounded_up(dim, kPanel)) * spec.planes());
    for (int plane = 0; plane < spec.planes(); ++plane)
        for (int i = 0; i < dim; ++i) {
            const float value = bias[static_cast<std::size_t>(plane) * dim + i];
            if (!std::isfinite(value)) throw std::invalid_argument("a bias is NaN or infinite");
            const int gates = spec.gates, panel = i / kPanel;
            const int before = plane < gates ? panel * gates + plane : panels_of(dim) * gates + panel;
            packed.data()[static_cast<std::size_t>(before) * kPanel + i % kPanel] = value;
        }
    return packed;
}

}  // namespace

Layer::Layer(Unit unit, int dim, const LayerWeights& weights, Precision precision)
    : unit(unit), dim(dim), precision(precision), bias(packed_bias(spec_of(unit), dim, weights.bias)) {
    const UnitSpec& spec = spec_of(unit);
    if (spec.variable) scheduler.emplace(weights.u, weights.v, weights.b, dim);
    const bool last_apart = spec.resets || spec.resets_product;
    const int through = last_apart ? spec.gates - 1 : spec.gates;  // gates that read hbar itself, and are not apart
    U = HookMatrix(weights.U, 0, through, dim, precision);
    if (last_apart) U_reset = HookMatrix(weights.U, through, spec.gates, dim, precision);
    V = HookMatrix(weights.V, 0, spec.gates, dim, precision);
}

}  // namespace vcdeploy
