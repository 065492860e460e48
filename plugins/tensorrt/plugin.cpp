// The plugin's methods. They must not throw: errors are logged and returned as a nonzero number.
#include "plugin.h"

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "call.h"
#include "log.h"

namespace vcdeploy {

using namespace nvinfer1;

namespace {

constexpr const char* kInputs[] = {"X", "H0", "U", "V", "u", "v", "b", "C0"};
constexpr int kMostDimensions = 65536;
constexpr int kMostSequences = 1 << 20;
constexpr int32_t kFailed = -1;

// Returns the result of `act`, or logs the error and returns kFailed.
template <class Act>
int32_t guarded(Unit unit, const Act& act) noexcept {
    try {
        return act();
    } catch (const std::exception& error) {
        log_error(std::string(spec_of(unit).op) + ": " + error.what());
    } catch (...) {
        log_error(std::string(spec_of(unit).op) + ": unknown error");
    }
    return kFailed;
}

bool is_weight(int input) { return input == 2 || input == 3; }

// The maximum shape of input k. In a profile, the maximum B of X and of a state may differ: use that of X. The shapes
// of a call are compared when they are set.
Dims largest(const DynamicPluginTensorDesc* in, int k) {
    Dims dims = in[k].max;
    if ((k == 1 || k == 7) && dims.nbDims == 2) dims.d[0] = in[0].max.d[1];
    return dims;
}

std::string text(const Dims& dims) {
    std::string list = "[";
    for (int k = 0; k < dims.nbDims; ++k) list += (k ? ", " : "") + std::to_string(dims.d[k]);
    return list + "]";
}

}  // namespace

UnitPlugin::UnitPlugin(Unit unit, float sharpness, float epsilon, int32_t rooms, Path wanted)
    : unit_(unit), sharpness_(sharpness), epsilon_(epsilon), rooms_(rooms), wanted_(wanted) {
    if (!(sharpness > 0) || !std::isfinite(sharpness))
        throw std::invalid_argument("sharpness must be above 0, not " + std::to_string(sharpness));
    if (!(epsilon > 0 && epsilon < 0.5f))
        throw std::invalid_argument("epsilon must be between 0 and 0.5, not " + std::to_string(epsilon));
    if (rooms < 0 || rooms > kMostRooms)
        throw std::invalid_argument("rooms must be between 0 and " + std::to_string(kMostRooms) + ", not " +
                                    std::to_string(rooms));
    description_ = std::string(spec_of(unit).op) + " sharpness " + std::to_string(sharpness) + " epsilon " +
                   std::to_string(epsilon);
    fields_ = {PluginField("sharpness", &sharpness_, PluginFieldType::kFLOAT32, 1),
               PluginField("epsilon", &epsilon_, PluginFieldType::kFLOAT32, 1),
               PluginField("rooms", &rooms_, PluginFieldType::kINT32, 1)};
    collection_ = {int32_t(fields_.size()), fields_.data()};
}

IPluginCapability* UnitPlugin::getCapabilityInterface(PluginCapabilityType type) noexcept {
    switch (type) {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
    }
    return nullptr;
}

IPluginV3* UnitPlugin::clone() noexcept {
    IPluginV3* copy = nullptr;
    guarded(unit_, [&] {
        auto made = std::make_unique<UnitPlugin>(unit_, sharpness_, epsilon_, rooms_, wanted_);
        made->tactic_ = tactic_, made->tactics_ = tactics_;
        copy = made.release();
        return 0;
    });
    return copy;
}

void UnitPlugin::expect_counts(int32_t in, int32_t out) const {
    if (in != inputs() || out != outputs())
        throw std::invalid_argument("needs " + std::to_string(inputs()) + " inputs and " + std::to_string(outputs()) +
                                    " outputs, not " + std::to_string(in) + " and " + std::to_string(out));
}

template <class TypeOf>
Types UnitPlugin::types_of(const TypeOf& type_of) const {
    const DataType activation = type_of(0), weight = type_of(2);
    for (int k = 0; k < inputs(); ++k)
        if (type_of(k) != (is_weight(k) ? weight : activation))
            throw std::invalid_argument(std::string(kInputs[k]) + " must have the type of " +
                                        (is_weight(k) ? "U" : "X"));
    if (activation == DataType::kFLOAT && weight == DataType::kFLOAT) return Types::f32;
    if (activation == DataType::kFLOAT && weight == DataType::kHALF) return Types::half_weights;
    if (activation == DataType::kHALF && weight == DataType::kHALF) return Types::half;
    throw std::invalid_argument(
        "X and the weights must be float32 and float32, float32 and float16, or float16 and float16");
}

template <class DimsOf>
Sizes UnitPlugin::sizes_of(Types types, const DimsOf& dims_of) const {
    const Dims X = dims_of(0);
    if (X.nbDims != 3) throw std::invalid_argument("X must have the shape [T, B, D], not " + text(X));
    const int64_t T = X.d[0], B = X.d[1], D = X.d[2], columns = types == Types::f32 ? 4 : 8;
    if (T < 0 || T > (1 << 30) || B < 0 || B > kMostSequences || D < 1 || D > kMostDimensions)
        throw std::invalid_argument("X must have the shape [T, B, D] with T up to 2^30, B up to " +
                                    std::to_string(kMostSequences) + " and D from 1 to " +
                                    std::to_string(kMostDimensions) + ", not " + text(X));
    const int64_t size = padded(int(D));
    const Dims packed{5, {size / columns, size / kPanel, gates_of(unit_), kPanel, columns}};
    const Dims wanted[] = {X, {2, {B, D}}, packed, packed, {1, {D}}, {1, {D}}, {1, {1}}, {2, {B, D}}};
    for (int k = 1; k < inputs(); ++k) {
        const Dims dims = dims_of(k);
        bool same = dims.nbDims == wanted[k].nbDims;
        for (int i = 0; same && i < dims.nbDims; ++i) same = dims.d[i] == wanted[k].d[i];
        if (!same)
            throw std::invalid_argument(std::string(kInputs[k]) + " must have the shape " + text(wanted[k]) +
                                        " where X is " + text(X) + ", not " + text(dims) +
                                        (is_weight(k) ? "; export the model again with this version" : ""));
    }
    return {int(T), int(B), int(D)};
}

int32_t UnitPlugin::configurePlugin(const DynamicPluginTensorDesc* in, int32_t inputs, const DynamicPluginTensorDesc*,
                                    int32_t outputs) noexcept {
    return guarded(unit_, [&] {
        expect_counts(inputs, outputs);
        const Types types = types_of([&](int k) { return in[k].desc.type; });
        const Sizes most = sizes_of(types, [&](int k) { return largest(in, k); });
        rooms_ = rooms_needed(unit_, most.D, wanted_);
        tactics_.clear();
        if (wanted_ == Path::automatic) tactics_ = runnable(unit_, types, most.B > 0 ? most.B : 1, most.D, rooms_);
        return 0;
    });
}

int32_t UnitPlugin::getOutputDataTypes(DataType* types, int32_t outputs, const DataType* of_inputs,
                                       int32_t inputs) const noexcept {
    return guarded(unit_, [&] {
        expect_counts(inputs, outputs);
        types_of([&](int k) { return of_inputs[k]; });
        for (int k = 0; k < outputs; ++k) types[k] = of_inputs[0];
        return 0;
    });
}

int32_t UnitPlugin::getOutputShapes(const DimsExprs* in, int32_t inputs, const DimsExprs*, int32_t shapes,
                                    DimsExprs* out, int32_t outputs, IExprBuilder& builder) noexcept {
    return guarded(unit_, [&] {
        expect_counts(inputs, outputs);
        if (shapes != 0) throw std::invalid_argument("takes no shape tensors");
        constexpr int ranks[] = {3, 2, 5, 5, 1, 1, 1, 2};
        for (int k = 0; k < inputs; ++k)
            if (in[k].nbDims != ranks[k])
                throw std::invalid_argument(std::string(kInputs[k]) + " must have " + std::to_string(ranks[k]) +
                                            " dimensions, not " + std::to_string(in[k].nbDims));
        const IDimensionExpr *T = in[0].d[0], *B = in[0].d[1], *D = in[0].d[2];
        // Check sizes that are already known; the others are checked when the shapes are set.
        const auto expect = [&](int k, int axis, const IDimensionExpr* wanted) {
            const IDimensionExpr* given = in[k].d[axis];
            if (given->isConstant() && wanted->isConstant() && given->getConstantValue() != wanted->getConstantValue())
                throw std::invalid_argument(
                    std::string(kInputs[k]) + " must have " + std::to_string(wanted->getConstantValue()) +
                    " along axis " + std::to_string(axis) + ", not " + std::to_string(given->getConstantValue()));
        };
        // A failed operation returns null.
        const auto known = [](const IDimensionExpr* made) {
            if (made == nullptr) throw std::runtime_error("TensorRT could not compute a shape");
            return made;
        };
        const IDimensionExpr* panel = known(builder.constant(kPanel));
        const IDimensionExpr* panels = known(builder.operation(DimensionOperation::kCEIL_DIV, *D, *panel));
        for (int k = 1; k < inputs; ++k) {
            if (is_weight(k)) {  // the type is not known here, and so not axes 0 and 4
                expect(k, 1, panels);
                expect(k, 2, known(builder.constant(gates_of(unit_))));
                expect(k, 3, panel);
                continue;
            }
            expect(k, ranks[k] - 1, k == 6 ? known(builder.constant(1)) : D);
            if (ranks[k] == 2) expect(k, 0, B);
        }
        out[0] = in[0];
        out[1].nbDims = 2, out[1].d[0] = B, out[1].d[1] = D;
        out[2].nbDims = 2, out[2].d[0] = T, out[2].d[1] = B;
        if (spec_of(unit_).has_cell()) out[3] = out[1];
        return 0;
    });
}

bool UnitPlugin::supportsFormatCombination(int32_t position, const DynamicPluginTensorDesc* in_out, int32_t inputs,
                                           int32_t outputs) noexcept {
    const auto supported = [&] {
        expect_counts(inputs, outputs);
        // Only entries up to `position` may be read.
        const PluginTensorDesc& here = in_out[position].desc;
        const DataType activation = in_out[0].desc.type;
        if (here.format != TensorFormat::kLINEAR) return false;
        if (position == 0) return activation == DataType::kFLOAT || activation == DataType::kHALF;
        if (position == 2)
            return here.type == DataType::kHALF || (here.type == DataType::kFLOAT && activation == here.type);
        if (position == 3) return here.type == in_out[2].desc.type;
        return here.type == activation;
    };
    return guarded(unit_, [&] { return supported() ? 1 : 0; }) == 1;
}

size_t UnitPlugin::getWorkspaceSize(const DynamicPluginTensorDesc* in, int32_t inputs, const DynamicPluginTensorDesc*,
                                    int32_t outputs) const noexcept {
    // There is no error code, but no GPU has a workspace of this size: the build fails.
    size_t bytes = std::numeric_limits<size_t>::max();
    guarded(unit_, [&] {
        expect_counts(inputs, outputs);
        const Sizes most =
            sizes_of(types_of([&](int k) { return in[k].desc.type; }), [&](int k) { return largest(in, k); });
        bytes = workspace_bytes(unit_, most.B, most.D, rooms_);
        return 0;
    });
    return bytes;
}

int32_t UnitPlugin::getValidTactics(int32_t* tactics, int32_t count) noexcept {
    return guarded(unit_, [&] {
        if (count != getNbTactics())
            throw std::invalid_argument("has " + std::to_string(getNbTactics()) + " tactics, not " +
                                        std::to_string(count));
        for (int32_t k = 0; k < count; ++k) tactics[k] = int32_t(tactics_[k]);
        return 0;
    });
}

int32_t UnitPlugin::setTactic(int32_t tactic) noexcept {
    return guarded(unit_, [&] {
        if (tactic < int32_t(Path::automatic) || tactic > int32_t(Path::grid_together))
            throw std::invalid_argument("no tactic " + std::to_string(tactic));
        tactic_ = Path(tactic);
        prepared_.reset();
        return 0;
    });
}

const UnitPlugin::Prepared& UnitPlugin::prepare(Types types, const Sizes& sizes) {
    if (!prepared_ || prepared_->types != types || prepared_->B != sizes.B || prepared_->D != sizes.D) {
        prepared_.reset();
        // Without sequences nothing is launched, so any plan works.
        const Path path = wanted_ == Path::automatic ? tactic_ : wanted_;
        const Plan found = prepared(unit_, types, sizes.B > 0 ? sizes.B : 1, sizes.D, path, rooms_);
        prepared_ = Prepared{types, sizes.B, sizes.D, found};
    }
    return *prepared_;
}

int32_t UnitPlugin::onShapeChange(const PluginTensorDesc* in, int32_t inputs, const PluginTensorDesc*,
                                  int32_t outputs) noexcept {
    return guarded(unit_, [&] {
        expect_counts(inputs, outputs);
        const Types types = types_of([&](int k) { return in[k].type; });
        prepare(types, sizes_of(types, [&](int k) { return in[k].dims; }));
        return 0;
    });
}

int32_t UnitPlugin::enqueue(const PluginTensorDesc* in, const PluginTensorDesc*, const void* const* inputs,
                            void* const* outputs, void* workspace, cudaStream_t stream) noexcept {
    return guarded(unit_, [&] {
        const Types types = types_of([&](int k) { return in[k].type; });
        const Sizes sizes = sizes_of(types, [&](int k) { return in[k].dims; });
        const Prepared& ready = prepare(types, sizes);
        Tensors tensors{};
        for (int k = 0; k < this->inputs(); ++k) tensors.in[k] = inputs[k];
        for (int k = 0; k < this->outputs(); ++k) tensors.out[k] = outputs[k];
        const cudaError_t error =
            launch(unit_, types, ready.plan, sizes, sharpness_, epsilon_, tensors, workspace, stream);
        if (error != cudaSuccess)
            throw std::runtime_error(std::string("the launch failed: ") + cudaGetErrorString(error));
        return 0;
    });
}

const PluginFieldCollection* UnitPlugin::getFieldsToSerialize() noexcept { return &collection_; }

}  // namespace vcdeploy
