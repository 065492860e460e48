// Sorts a layer's gates into the matrices a step multiplies.
#include "layer.h"

namespace vcdeploy {

Layer::Layer(Unit unit, int dim, const LayerWeights& weights, Precision precision)
    : unit(unit), dim(dim), precision(precision), scheduler(weights.u, weights.v, weights.b, dim) {
    const bool resets = unit == Unit::vcgru;
    U = HookMatrix(weights.U, 0, resets ? 2 : gates_of(unit), dim, precision);
    if (resets) U_reset = HookMatrix(weights.U, 2, 3, dim, precision);
    V = HookMatrix(weights.V, 0, gates_of(unit), dim, precision);
}

}  // namespace vcdeploy
