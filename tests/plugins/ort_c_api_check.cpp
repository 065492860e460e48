// Compiles only if ort_c_api.h agrees with ONNX Runtime's own header: every position, signature and value, and the
// layout of OrtCustomOp. The lists expand outside our namespace, so their types are ONNX Runtime's.
#include <onnxruntime_c_api.h>

#include <type_traits>
#include <utility>

#include "ort_c_api.h"

// The type of a function pointer without noexcept, which ONNX Runtime's header adds to most of them.
template <class Result, class... Parameters>
auto plain(Result(VCDEPLOY_ORT_CALL*)(Parameters...)) -> Result(VCDEPLOY_ORT_CALL*)(Parameters...);

#define CHECK(position, result, name, parameters)                                                         \
    static_assert(offsetof(OF, name) == position * sizeof(void*), "position of " #name);                  \
    static_assert(std::is_same_v<decltype(plain(std::declval<decltype(OF::name)>())),                     \
                                 result(VCDEPLOY_ORT_CALL*) parameters>,                                  \
                  "signature of " #name);
#define OF OrtApi
VCDEPLOY_ORT_API_ENTRIES(CHECK)
#undef OF
#define OF OrtApiBase
VCDEPLOY_ORT_API_BASE_ENTRIES(CHECK)
#undef OF
#define OF OrtCustomOp
VCDEPLOY_ORT_CUSTOM_OP_ENTRIES(CHECK)
#undef OF

static_assert(offsetof(OrtCustomOp, version) == offsetof(vcdeploy::OrtCustomOp, version), "position of version");
static_assert(std::is_same_v<decltype(OrtCustomOp::version), decltype(vcdeploy::OrtCustomOp::version)>, "type of version");
static_assert(sizeof(OrtCustomOp) >= sizeof(vcdeploy::OrtCustomOp), "size of OrtCustomOp");
static_assert(sizeof(OrtApi) >= sizeof(vcdeploy::OrtApi), "size of OrtApi");
static_assert(sizeof(OrtApiBase) == sizeof(vcdeploy::OrtApiBase), "size of OrtApiBase");
static_assert(ORT_API_VERSION >= vcdeploy::kOrtApiVersion, "this header is older than ONNX Runtime 1.19");

#define CHECK_VALUE(enumeration, name, value)                                              \
    static_assert(sizeof(enumeration) == sizeof(vcdeploy::enumeration), "size of " #enumeration); \
    static_assert(std::is_same_v<decltype(name), enumeration>, "enumeration of " #name);   \
    static_assert(static_cast<int>(name) == value, "value of " #name);
VCDEPLOY_ORT_VALUES(CHECK_VALUE)
