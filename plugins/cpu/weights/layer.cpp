// Packs a layer's gates into the matrices a step multiplies.
#include "weights/layer.h"

namespace vcdeploy {

Layer::Layer(Unit unit, int dim, const LayerWeights& weights, Precision precision)
    : unit(unit), dim(dim), precision(precision), scheduler(weights.u, weights.v, weights.b, dim) {
    const int gates = spec_of(unit).gates;
    const bool resets = spec_of(unit).resets;
    const int through = resets ? gates - 1 : gates;  // gates that read hbar itself
    U = HookMatrix(weights.U, 0, through, dim, precision);
    if (resets) U_reset = HookMatrix(weights.U, through, gates, dim, precision);
    V = HookMatrix(weights.V, 0, gates, dim, precision);
}

}  // namespace vcdeploy
