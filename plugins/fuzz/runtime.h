// A stand-in for ONNX Runtime: the functions of OrtApi that the custom op calls, over plain structures.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ort_c_api.h"

struct OrtStatus {
    std::string message;
};

struct OrtValue {
    std::vector<std::int64_t> shape;
    int type = 1;  // float32
    std::vector<float> data;
};

struct OrtTensorTypeAndShapeInfo {
    const OrtValue* of;
};

struct OrtCustomOpDomain {
    std::vector<const vcdeploy::OrtCustomOp*> ops;
};

struct OrtSessionOptions {
    std::map<std::string, std::string> entries;
    OrtCustomOpDomain* domain = nullptr;
};

struct OrtKernelInfo {
    std::map<std::string, float> floats;
    std::map<std::string, std::int64_t> integers;
    std::map<std::size_t, const OrtValue*> constants;
};

struct OrtKernelContext {
    std::vector<const OrtValue*> inputs;
    std::vector<bool> wanted;  // outputs
    std::vector<OrtValue> outputs;
};

namespace vcdeploy::fuzz {

const OrtApiBase& runtime();

}  // namespace vcdeploy::fuzz
