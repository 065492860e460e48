// Checks the inputs of a node and runs its layer.
#include "unit_kernel.h"

#include <cstring>
#include <limits>
#include <stdexcept>

#include "kernels/dispatch.h"
#include "status.h"
#include "weights/quantization.h"

namespace vcdeploy {
namespace {

constexpr const char* kInputs[] = {"X", "H0", "U", "V", "u", "v", "b", "C0"};
constexpr std::int64_t kMostDimensions = 1 << 16;

float attribute(const OrtApi& api, const OrtKernelInfo& info, const char* name) {
    float value = 0;
    if (OrtStatus* status = api.KernelInfoGetAttribute_float(&info, name, &value)) {
        api.ReleaseStatus(status);
        throw std::invalid_argument(std::string("the node needs the attribute ") + name + ", a float");
    }
    return value;
}

Softness softness_of(const OrtApi& api, const OrtKernelInfo& info) {
    return Softness(attribute(api, info, "sharpness"), attribute(api, info, "epsilon"));
}

// An attribute that only nodes of a quantized precision have; 0 for others.
std::int64_t levels_of(const OrtApi& api, const OrtKernelInfo& info) {
    std::int64_t levels = 0;
    if (OrtStatus* status = api.KernelInfoGetAttribute_int64(&info, "activation_levels", &levels)) {
        api.ReleaseStatus(status);
        return 0;
    }
    return levels;
}

// The precision of a node with so many levels; int8 has fewer than its most at large D.
Precision precision_of_levels(std::int64_t levels) {
    if (levels == 0) return Precision::f32;
    for (const PrecisionSpec& each : kPrecisions)
        if (each.levels == levels) return each.precision;
    return Precision::int8;
}

std::size_t size_of(const Tensor& tensor) {
    std::size_t size = 1;
    for (std::int64_t each : tensor.shape) size *= static_cast<std::size_t>(each);
    return size;
}

}  // namespace

void SharedLayer::run(const SequenceCall& call) {
    std::unique_ptr<Stepper> stepper;
    {
        const std::lock_guard lock(busy_);
        if (!idle_.empty()) {
            stepper = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    if (!stepper)
        stepper = std::make_unique<Stepper>(layer_.unit, layer_.dim, layer_.precision, softness_,
                                            choose_kernels("auto"), threads_);
    run_sequences(layer_, *stepper, call);
    const std::lock_guard lock(busy_);
    idle_.push_back(std::move(stepper));
}

UnitKernel::UnitKernel(const OrtApi& api, const OrtKernelInfo& info, Unit unit, Settings settings)
    : api_(api), unit_(unit), settings_(settings), softness_(softness_of(api, info)), levels_(levels_of(api, info)),
      precision_(settings.precision.value_or(precision_of_levels(levels_))) {
    std::vector<Tensor> weights;
    for (std::size_t index = kFirstWeight; index < kFirstWeight + kWeights; ++index) {
        int is_constant = 0;
        const OrtValue* value = nullptr;
        require(api, api.KernelInfoGetConstantInput_tensor(&info, index, &is_constant, &value));
        if (!is_constant) return;
        weights.push_back(tensor_of(api, value, kInputs[index]));
    }
    const Shape& u = weights[2].shape;
    constant_ = packed(weights, u.empty() ? 0 : u[0]);
}

std::shared_ptr<SharedLayer> UnitKernel::packed(const std::vector<Tensor>& weights, std::int64_t D) const {
    if (D < 1 || D > kMostDimensions)
        throw std::invalid_argument("a state has 1 to " + std::to_string(kMostDimensions) + " dimensions, not " +
                                    std::to_string(D));
    const int own = activation_levels(precision_, static_cast<int>(D));
    if (levels_ && own && levels_ != own)
        throw std::invalid_argument("the node has activation_levels = " + std::to_string(levels_) +
                                    ", and the kernels round to " + std::to_string(own) + " at " + std::to_string(D) +
                                    " dimensions");
    const Shape matrix{D * gates_of(unit_), D};
    const auto stored = [&](const Tensor& tensor, const char* name) {
        const auto* data = reinterpret_cast<const unsigned char*>(elements(tensor, name, matrix));
        return MatrixView{data, Precision::f32, nullptr, static_cast<int>(D)};
    };
    const LayerWeights found{stored(weights[0], "U"), stored(weights[1], "V"), elements(weights[2], "u", {D}),
                             elements(weights[3], "v", {D}), *elements(weights[4], "b", {1})};
    return std::make_shared<SharedLayer>(unit_, static_cast<int>(D), found, softness_, precision_, settings_.threads);
}

std::shared_ptr<SharedLayer> UnitKernel::layer_for(OrtKernelContext& context, std::int64_t D) {
    if (constant_) return constant_;
    std::vector<Tensor> weights;
    for (std::size_t index = kFirstWeight; index < kFirstWeight + kWeights; ++index)
        weights.push_back(input(context, index));
    std::shared_ptr<const Remembered> last;
    {
        const std::lock_guard lock(changing_);
        last = last_;
    }
    bool same = last && last->layer->dim() == D;
    for (std::size_t i = 0; i < kWeights && same; ++i) {
        const std::vector<float>& copy = last->copies[i];
        same = copy.size() == size_of(weights[i]) &&
               std::memcmp(copy.data(), weights[i].data, copy.size() * sizeof(float)) == 0;
    }
    if (same) return last->layer;

    auto made = std::make_shared<Remembered>();
    made->layer = packed(weights, D);
    for (const Tensor& each : weights) made->copies.emplace_back(each.data, each.data + size_of(each));
    std::shared_ptr<const Remembered> replaced = made;  // ends after the lock: it holds a ForkMutex of its own
    {
        const std::lock_guard lock(changing_);
        last_.swap(replaced);
    }
    return made->layer;
}

Tensor UnitKernel::input(OrtKernelContext& context, std::size_t index) const {
    const OrtValue* value = nullptr;
    require(api_, api_.KernelContext_GetInput(&context, index, &value));
    return tensor_of(api_, value, kInputs[index]);
}

void UnitKernel::compute(OrtKernelContext& context) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    const Tensor X = input(context, 0), H0 = input(context, 1);
    if (X.shape.size() != 3 || X.shape[0] > kMost || X.shape[1] > kMost)
        throw std::invalid_argument("X must have the shape [T, B, D], not " + to_string(X.shape));
    const std::int64_t T = X.shape[0], B = X.shape[1];
    const std::shared_ptr<SharedLayer> layer = layer_for(context, X.shape[2]);
    const std::int64_t D = layer->dim();

    const bool has_cell = spec_of(unit_).has_cell();
    SequenceCall call{};
    call.T = static_cast<int>(T);
    call.B = static_cast<int>(B);
    call.X = elements(X, "X", {T, B, D});
    call.H0 = elements(H0, "H0", {B, D});
    if (has_cell) call.C0 = elements(input(context, 7), "C0", {B, D});
    Output Y(api_, context, 0, {T, B, D}), H(api_, context, 1, {B, D}), M(api_, context, 2, {T, B});
    call.Y = Y.data();
    call.H = H.data();
    call.M = M.data();
    if (!has_cell) return layer->run(call);
    Output C(api_, context, 3, {B, D});
    call.C = C.data();
    layer->run(call);
}

}  // namespace vcdeploy
