// The functions of the record. Those that may fail return a status; nothing throws past here.
#include "custom_op.h"

#include "status.h"

namespace vcdeploy {
namespace {

const char* name_of(Unit unit) {
    return unit == Unit::vcrnn ? "VCRNN" : unit == Unit::vcgru ? "VCGRU" : "VCLSTM";
}

const CustomOp& own(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

const char* ORT_API_CALL get_name(const OrtCustomOp* op) noexcept { return name_of(own(op).unit); }

const char* ORT_API_CALL get_provider(const OrtCustomOp*) noexcept { return nullptr; }  // the CPU's

ONNXTensorElementDataType ORT_API_CALL get_type(const OrtCustomOp*, std::size_t) noexcept {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

std::size_t ORT_API_CALL count_inputs(const OrtCustomOp* op) noexcept {
    return own(op).unit == Unit::vclstm ? 8 : 7;
}

std::size_t ORT_API_CALL count_outputs(const OrtCustomOp* op) noexcept {
    return own(op).unit == Unit::vclstm ? 4 : 3;
}

OrtCustomOpInputOutputCharacteristic ORT_API_CALL input_kind(const OrtCustomOp*, std::size_t) noexcept {
    return INPUT_OUTPUT_REQUIRED;
}

// Any output may be left out by its node, as with the function that a file carries for the op.
OrtCustomOpInputOutputCharacteristic ORT_API_CALL output_kind(const OrtCustomOp*, std::size_t) noexcept {
    return INPUT_OUTPUT_OPTIONAL;
}

OrtMemType ORT_API_CALL input_memory(const OrtCustomOp*, std::size_t) noexcept { return OrtMemTypeDefault; }

int ORT_API_CALL least_variadic(const OrtCustomOp*) noexcept { return 1; }

int ORT_API_CALL uniform_variadic(const OrtCustomOp*) noexcept { return 1; }

int ORT_API_CALL version(const OrtCustomOp*) noexcept { return 1; }

OrtStatus* ORT_API_CALL create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info,
                               void** kernel) noexcept {
    *kernel = nullptr;
    const CustomOp& self = own(op);
    return guarded(*api, name_of(self.unit),
                   [&] { *kernel = new UnitKernel(*api, *info, self.unit, self.settings); });
}

OrtStatus* ORT_API_CALL compute(void* kernel, OrtKernelContext* context) noexcept {
    UnitKernel& self = *static_cast<UnitKernel*>(kernel);
    return guarded(self.api(), name_of(self.unit()), [&] { self.compute(*context); });
}

void ORT_API_CALL destroy(void* kernel) noexcept { delete static_cast<UnitKernel*>(kernel); }

}  // namespace

CustomOp::CustomOp(Unit unit, Settings settings) : OrtCustomOp{}, unit(unit), settings(settings) {
    OrtCustomOp::version = VCDEPLOY_ORT_API;
    GetName = get_name;
    GetExecutionProviderType = get_provider;
    GetInputType = GetOutputType = get_type;
    GetInputTypeCount = count_inputs;
    GetOutputTypeCount = count_outputs;
    GetInputCharacteristic = input_kind;
    GetOutputCharacteristic = output_kind;
    GetInputMemoryType = input_memory;
    // Nothing is variadic, yet a runtime may ask.
    GetVariadicInputMinArity = GetVariadicOutputMinArity = least_variadic;
    GetVariadicInputHomogeneity = GetVariadicOutputHomogeneity = uniform_variadic;
    GetStartVersion = GetEndVersion = vcdeploy::version;
    CreateKernelV2 = create;
    KernelComputeV2 = compute;
    KernelDestroy = destroy;
}

}  // namespace vcdeploy
