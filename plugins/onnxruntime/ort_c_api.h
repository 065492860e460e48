// The part of ONNX Runtime's C interface that the ops use. With it, the build needs nothing of ONNX Runtime.
//
// A runtime hands out one table of function pointers, OrtApi. A new release only appends to it, so a function keeps its
// position, and the table of any release since the one we request works. OrtCustomOp, the record that
// describes an op to the runtime, grows in the same way; `version` says how much of it to read.
//
// Positions, signatures and values are listed once, below. tests/plugins/test_ort_c_api.py expands the same
// lists beside ONNX Runtime's own header and compares each line. The types that have a definition are in our namespace,
// so both headers fit into one program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#ifdef _WIN32
#define VCDEPLOY_ORT_CALL __stdcall
#else
#define VCDEPLOY_ORT_CALL
#endif

// Opaque types.
struct OrtCustomOpDomain;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtSessionOptions;
struct OrtShapeInferContext;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;

// Functions of OrtApi: ENTRY(position, result, name, parameters).
#define VCDEPLOY_ORT_API_ENTRIES(ENTRY)                                                                         \
    ENTRY(0, OrtStatus*, CreateStatus, (OrtErrorCode, const char*))                                             \
    ENTRY(2, const char*, GetErrorMessage, (const OrtStatus*))                                                  \
    ENTRY(26, OrtStatus*, CreateCustomOpDomain, (const char*, OrtCustomOpDomain**))                             \
    ENTRY(27, OrtStatus*, CustomOpDomain_Add, (OrtCustomOpDomain*, const OrtCustomOp*))                         \
    ENTRY(28, OrtStatus*, AddCustomOpDomain, (OrtSessionOptions*, OrtCustomOpDomain*))                          \
    ENTRY(51, OrtStatus*, GetTensorMutableData, (OrtValue*, void**))                                            \
    ENTRY(60, OrtStatus*, GetTensorElementType, (const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType*)) \
    ENTRY(61, OrtStatus*, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo*, std::size_t*))                 \
    ENTRY(62, OrtStatus*, GetDimensions, (const OrtTensorTypeAndShapeInfo*, std::int64_t*, std::size_t))        \
    ENTRY(65, OrtStatus*, GetTensorTypeAndShape, (const OrtValue*, OrtTensorTypeAndShapeInfo**))                \
    ENTRY(85, OrtStatus*, KernelInfoGetAttribute_float, (const OrtKernelInfo*, const char*, float*))            \
    ENTRY(86, OrtStatus*, KernelInfoGetAttribute_int64, (const OrtKernelInfo*, const char*, std::int64_t*))     \
    ENTRY(89, OrtStatus*, KernelContext_GetOutputCount, (const OrtKernelContext*, std::size_t*))                \
    ENTRY(90, OrtStatus*, KernelContext_GetInput, (const OrtKernelContext*, std::size_t, const OrtValue**))     \
    ENTRY(91, OrtStatus*, KernelContext_GetOutput,                                                              \
          (OrtKernelContext*, std::size_t, const std::int64_t*, std::size_t, OrtValue**))                       \
    ENTRY(93, void, ReleaseStatus, (OrtStatus*))                                                                \
    ENTRY(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo*))                                \
    ENTRY(101, void, ReleaseCustomOpDomain, (OrtCustomOpDomain*))                                               \
    ENTRY(237, OrtStatus*, HasSessionConfigEntry, (const OrtSessionOptions*, const char*, int*))                \
    ENTRY(238, OrtStatus*, GetSessionConfigEntry, (const OrtSessionOptions*, const char*, char*, std::size_t*)) \
    ENTRY(249, OrtStatus*, KernelInfoGetConstantInput_tensor,                                                   \
          (const OrtKernelInfo*, std::size_t, int*, const OrtValue**))

// Functions of OrtApiBase, complete: ENTRY(position, result, name, parameters).
#define VCDEPLOY_ORT_API_BASE_ENTRIES(ENTRY)         \
    ENTRY(0, const OrtApi*, GetApi, (std::uint32_t)) \
    ENTRY(1, const char*, GetVersionString, ())

// Members of OrtCustomOp after `version`, without a gap: ENTRY(position, result, name, parameters). Unused ones stay
// null.
#define VCDEPLOY_ORT_CUSTOM_OP_ENTRIES(ENTRY)                                                                   \
    ENTRY(1, void*, CreateKernel, (const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*))                    \
    ENTRY(2, const char*, GetName, (const OrtCustomOp*))                                                        \
    ENTRY(3, const char*, GetExecutionProviderType, (const OrtCustomOp*))                                       \
    ENTRY(4, ONNXTensorElementDataType, GetInputType, (const OrtCustomOp*, std::size_t))                        \
    ENTRY(5, std::size_t, GetInputTypeCount, (const OrtCustomOp*))                                              \
    ENTRY(6, ONNXTensorElementDataType, GetOutputType, (const OrtCustomOp*, std::size_t))                       \
    ENTRY(7, std::size_t, GetOutputTypeCount, (const OrtCustomOp*))                                             \
    ENTRY(8, void, KernelCompute, (void*, OrtKernelContext*))                                                   \
    ENTRY(9, void, KernelDestroy, (void*))                                                                      \
    ENTRY(10, OrtCustomOpInputOutputCharacteristic, GetInputCharacteristic, (const OrtCustomOp*, std::size_t))  \
    ENTRY(11, OrtCustomOpInputOutputCharacteristic, GetOutputCharacteristic, (const OrtCustomOp*, std::size_t)) \
    ENTRY(12, OrtMemType, GetInputMemoryType, (const OrtCustomOp*, std::size_t))                                \
    ENTRY(13, int, GetVariadicInputMinArity, (const OrtCustomOp*))                                              \
    ENTRY(14, int, GetVariadicInputHomogeneity, (const OrtCustomOp*))                                           \
    ENTRY(15, int, GetVariadicOutputMinArity, (const OrtCustomOp*))                                             \
    ENTRY(16, int, GetVariadicOutputHomogeneity, (const OrtCustomOp*))                                          \
    ENTRY(17, OrtStatus*, CreateKernelV2, (const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**))    \
    ENTRY(18, OrtStatus*, KernelComputeV2, (void*, OrtKernelContext*))                                          \
    ENTRY(19, OrtStatus*, InferOutputShapeFn, (const OrtCustomOp*, OrtShapeInferContext*))                      \
    ENTRY(20, int, GetStartVersion, (const OrtCustomOp*))                                                       \
    ENTRY(21, int, GetEndVersion, (const OrtCustomOp*))                                                         \
    ENTRY(22, std::size_t, GetMayInplace, (int**, int**))                                                       \
    ENTRY(23, void, ReleaseMayInplace, (int*, int*))                                                            \
    ENTRY(24, std::size_t, GetAliasMap, (int**, int**))                                                         \
    ENTRY(25, void, ReleaseAliasMap, (int*, int*))

// Enumerators: VALUE(enumeration, name, value). The runtime has more of each.
#define VCDEPLOY_ORT_VALUES(VALUE)                                               \
    VALUE(OrtErrorCode, ORT_FAIL, 1)                                             \
    VALUE(OrtErrorCode, ORT_INVALID_ARGUMENT, 2)                                 \
    VALUE(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, 0) \
    VALUE(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 1)     \
    VALUE(OrtCustomOpInputOutputCharacteristic, INPUT_OUTPUT_REQUIRED, 0)        \
    VALUE(OrtCustomOpInputOutputCharacteristic, INPUT_OUTPUT_OPTIONAL, 1)        \
    VALUE(OrtMemType, OrtMemTypeDefault, 0)

namespace vcdeploy {

// The version of OrtApi that the ops ask for: every runtime from 1.19 on offers it.
constexpr std::uint32_t kOrtApiVersion = 19;

// Any int, since a runtime may pass an enumerator that is newer than this header.
enum OrtErrorCode : int;
enum ONNXTensorElementDataType : int;
enum OrtCustomOpInputOutputCharacteristic : int;
enum OrtMemType : int;

#define VCDEPLOY_CONSTANT(enumeration, name, value) constexpr enumeration name{value};
VCDEPLOY_ORT_VALUES(VCDEPLOY_CONSTANT)
#undef VCDEPLOY_CONSTANT

struct OrtApi;
struct OrtCustomOp;

struct OrtApiBase {
#define VCDEPLOY_MEMBER(position, result, name, parameters) result(VCDEPLOY_ORT_CALL* name) parameters;
    VCDEPLOY_ORT_API_BASE_ENTRIES(VCDEPLOY_MEMBER)
};

struct OrtCustomOp {
    std::uint32_t version;  // of OrtApi
    VCDEPLOY_ORT_CUSTOM_OP_ENTRIES(VCDEPLOY_MEMBER)
#undef VCDEPLOY_MEMBER
};

// A runtime's table, up to the last function we use. Each function is called by its name: api.ReleaseStatus(status).
struct OrtApi {
    void (*table[250])();

#define VCDEPLOY_CALL(position, result, name, parameters)                                              \
    template <class... Arguments>                                                                      \
    result name(Arguments... arguments) const {                                                        \
        static_assert(position < std::size(decltype(table){}));                                        \
        return reinterpret_cast<result(VCDEPLOY_ORT_CALL*) parameters>(table[position])(arguments...); \
    }
    VCDEPLOY_ORT_API_ENTRIES(VCDEPLOY_CALL)
#undef VCDEPLOY_CALL
};

static_assert(sizeof(void (*)()) == sizeof(void*) && sizeof(OrtErrorCode) == sizeof(int));
#define VCDEPLOY_AT(position, result, name, parameters) \
    static_assert(offsetof(VCDEPLOY_OF, name) == position * sizeof(void*), #name);
#define VCDEPLOY_OF OrtApiBase
VCDEPLOY_ORT_API_BASE_ENTRIES(VCDEPLOY_AT)
#undef VCDEPLOY_OF
#define VCDEPLOY_OF OrtCustomOp
VCDEPLOY_ORT_CUSTOM_OP_ENTRIES(VCDEPLOY_AT)
#undef VCDEPLOY_OF
#undef VCDEPLOY_AT
static_assert(sizeof(OrtCustomOp) == 26 * sizeof(void*));

}  // namespace vcdeploy
