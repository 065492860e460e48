// Sorts a layer's gates into the matrices a step multiplies.
#include "layer.h"

namespace vcdeploy {
namespace {

// The matrices of gates [first, last) of a stack.
HookMatrix packed(const float* stack, int first, int last, int dim, Precision precision) {
    std::vector<const float*> gates;
    for (int gate = first; gate < last; ++gate) gates.push_back(stack + static_cast<std::size_t>(gate) * dim * dim);
    return HookMatrix(gates, dim, precision);
}

}  // namespace

Layer::Layer(Unit unit, int dim, const LayerWeights& weights, Precision precision)
    : unit(unit), dim(dim), precision(precision), scheduler(weights.u, weights.v, weights.b, dim) {
    const bool resets = unit == Unit::vcgru;
    U = packed(weights.U, 0, resets ? 2 : gates_of(unit), dim, precision);
    if (resets) U_reset = packed(weights.U, 2, 3, dim, precision);
    V = packed(weights.V, 0, gates_of(unit), dim, precision);
}

}  // namespace vcdeploy
