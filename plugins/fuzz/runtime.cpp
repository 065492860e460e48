// The functions of OrtApi by their positions in the table.
#include "runtime.h"

#include <cstring>

namespace vcdeploy::fuzz {
namespace {

// One struct of functions, with the names and signatures of the list in ort_c_api.h.
struct Functions {
    static OrtStatus* CreateStatus(OrtErrorCode, const char* message) { return new OrtStatus{message}; }
    static const char* GetErrorMessage(const OrtStatus* status) { return status->message.c_str(); }
    static void ReleaseStatus(OrtStatus* status) { delete status; }

    static OrtStatus* CreateCustomOpDomain(const char*, OrtCustomOpDomain** domain) {
        *domain = new OrtCustomOpDomain;
        return nullptr;
    }
    static OrtStatus* CustomOpDomain_Add(OrtCustomOpDomain* domain, const OrtCustomOp* op) {
        domain->ops.push_back(op);
        return nullptr;
    }
    static OrtStatus* AddCustomOpDomain(OrtSessionOptions* options, OrtCustomOpDomain* domain) {
        options->domain = domain;
        return nullptr;
    }
    static void ReleaseCustomOpDomain(OrtCustomOpDomain* domain) { delete domain; }

    static OrtStatus* HasSessionConfigEntry(const OrtSessionOptions* options, const char* key, int* found) {
        *found = static_cast<int>(options->entries.count(key));
        return nullptr;
    }
    static OrtStatus* GetSessionConfigEntry(const OrtSessionOptions* options, const char* key, char* value,
                                            std::size_t* size) {
        const std::string& entry = options->entries.at(key);
        if (value) std::memcpy(value, entry.c_str(), entry.size() + 1);
        *size = entry.size() + 1;
        return nullptr;
    }

    static OrtStatus* KernelInfoGetAttribute_float(const OrtKernelInfo* info, const char* name, float* value) {
        const auto found = info->floats.find(name);
        if (found == info->floats.end()) return new OrtStatus{"no such attribute"};
        *value = found->second;
        return nullptr;
    }
    static OrtStatus* KernelInfoGetAttribute_int64(const OrtKernelInfo* info, const char* name, std::int64_t* value) {
        const auto found = info->integers.find(name);
        if (found == info->integers.end()) return new OrtStatus{"no such attribute"};
        *value = found->second;
        return nullptr;
    }
    static OrtStatus* KernelInfoGetConstantInput_tensor(const OrtKernelInfo* info, std::size_t index, int* is_constant,
                                                        const OrtValue** value) {
        const auto found = info->constants.find(index);
        *is_constant = found != info->constants.end();
        if (*is_constant) *value = found->second;
        return nullptr;
    }

    static OrtStatus* KernelContext_GetInput(const OrtKernelContext* context, std::size_t index,
                                             const OrtValue** value) {
        *value = index < context->inputs.size() ? context->inputs[index] : nullptr;
        return nullptr;
    }
    static OrtStatus* KernelContext_GetOutputCount(const OrtKernelContext* context, std::size_t* count) {
        *count = context->wanted.size();
        return nullptr;
    }
    static OrtStatus* KernelContext_GetOutput(OrtKernelContext* context, std::size_t index, const std::int64_t* shape,
                                              std::size_t dimensions, OrtValue** value) {
        *value = nullptr;
        if (!context->wanted[index]) return nullptr;
        OrtValue& output = context->outputs[index];
        output.shape.assign(shape, shape + dimensions);
        std::size_t count = 1;
        for (const std::int64_t each : output.shape) count *= static_cast<std::size_t>(each);
        output.data.assign(count, 0);
        *value = &output;
        return nullptr;
    }

    static OrtStatus* GetTensorTypeAndShape(const OrtValue* value, OrtTensorTypeAndShapeInfo** info) {
        *info = new OrtTensorTypeAndShapeInfo{value};
        return nullptr;
    }
    static void ReleaseTensorTypeAndShapeInfo(OrtTensorTypeAndShapeInfo* info) { delete info; }
    static OrtStatus* GetTensorElementType(const OrtTensorTypeAndShapeInfo* info, ONNXTensorElementDataType* type) {
        *type = static_cast<ONNXTensorElementDataType>(info->of->type);
        return nullptr;
    }
    static OrtStatus* GetDimensionsCount(const OrtTensorTypeAndShapeInfo* info, std::size_t* count) {
        *count = info->of->shape.size();
        return nullptr;
    }
    static OrtStatus* GetDimensions(const OrtTensorTypeAndShapeInfo* info, std::int64_t* shape, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) shape[i] = info->of->shape[i];
        return nullptr;
    }
    static OrtStatus* GetTensorMutableData(OrtValue* value, void** data) {
        *data = value->data.data();
        return nullptr;
    }
};

const OrtApi& api() {
    static const OrtApi only = [] {
        OrtApi made{};
#define VCDEPLOY_ENTRY(position, result, name, parameters)             \
    {                                                                  \
        result(*function) parameters = Functions::name;                \
        made.table[position] = reinterpret_cast<void (*)()>(function); \
    }
        VCDEPLOY_ORT_API_ENTRIES(VCDEPLOY_ENTRY)
#undef VCDEPLOY_ENTRY
        return made;
    }();
    return only;
}

}  // namespace

const OrtApiBase& runtime() {
    static const OrtApiBase only{[](std::uint32_t) { return &api(); }, [] { return "1.19.0"; }};
    return only;
}

}  // namespace vcdeploy::fuzz
