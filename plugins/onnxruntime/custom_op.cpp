// The functions of OrtCustomOp. Those that can fail return a status; none throws.
#include "custom_op.h"

#include "status.h"

namespace vcdeploy {
namespace {

const char* name_of(Unit unit) { return spec_of(unit).op; }

const CustomOp& own(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

const char* VCDEPLOY_ORT_CALL get_name(const OrtCustomOp* op) noexcept { return name_of(own(op).unit); }

const char* VCDEPLOY_ORT_CALL get_provider(const OrtCustomOp*) noexcept { return nullptr; }  // the CPU

ONNXTensorElementDataType VCDEPLOY_ORT_CALL get_type(const OrtCustomOp*, std::size_t) noexcept {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

std::size_t VCDEPLOY_ORT_CALL count_inputs(const OrtCustomOp* op) noexcept { return spec_of(own(op).unit).inputs(); }

std::size_t VCDEPLOY_ORT_CALL count_outputs(const OrtCustomOp* op) noexcept { return spec_of(own(op).unit).outputs(); }

OrtCustomOpInputOutputCharacteristic VCDEPLOY_ORT_CALL input_kind(const OrtCustomOp*, std::size_t) noexcept {
    return INPUT_OUTPUT_REQUIRED;
}

// A node may omit any output, as it may with the function body in the file.
OrtCustomOpInputOutputCharacteristic VCDEPLOY_ORT_CALL output_kind(const OrtCustomOp*, std::size_t) noexcept {
    return INPUT_OUTPUT_OPTIONAL;
}

OrtMemType VCDEPLOY_ORT_CALL input_memory(const OrtCustomOp*, std::size_t) noexcept { return OrtMemTypeDefault; }

int VCDEPLOY_ORT_CALL least_variadic(const OrtCustomOp*) noexcept { return 1; }

int VCDEPLOY_ORT_CALL uniform_variadic(const OrtCustomOp*) noexcept { return 1; }

int VCDEPLOY_ORT_CALL version(const OrtCustomOp*) noexcept { return 1; }

OrtStatus* VCDEPLOY_ORT_CALL create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info,
                                    void** kernel) noexcept {
    *kernel = nullptr;
    const CustomOp& self = own(op);
    return guarded(*api, name_of(self.unit), [&] { *kernel = new UnitKernel(*api, *info, self.unit, self.settings); });
}

OrtStatus* VCDEPLOY_ORT_CALL compute(void* kernel, OrtKernelContext* context) noexcept {
    UnitKernel& self = *static_cast<UnitKernel*>(kernel);
    return guarded(self.api(), name_of(self.unit()), [&] { self.compute(*context); });
}

void VCDEPLOY_ORT_CALL destroy(void* kernel) noexcept { delete static_cast<UnitKernel*>(kernel); }

}  // namespace

CustomOp::CustomOp(Unit unit, Settings settings) : OrtCustomOp{}, unit(unit), settings(settings) {
    OrtCustomOp::version = kOrtApiVersion;
    GetName = get_name;
    GetExecutionProviderType = get_provider;
    GetInputType = GetOutputType = get_type;
    GetInputTypeCount = count_inputs;
    GetOutputTypeCount = count_outputs;
    GetInputCharacteristic = input_kind;
    GetOutputCharacteristic = output_kind;
    GetInputMemoryType = input_memory;
    // Nothing is variadic, but a runtime may call these anyway.
    GetVariadicInputMinArity = GetVariadicOutputMinArity = least_variadic;
    GetVariadicInputHomogeneity = GetVariadicOutputHomogeneity = uniform_variadic;
    GetStartVersion = GetEndVersion = vcdeploy::version;
    CreateKernelV2 = create;
    KernelComputeV2 = compute;
    KernelDestroy = destroy;
}

}  // namespace vcdeploy
