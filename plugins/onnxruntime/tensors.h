// ONNX Runtime's tensors as pointers and shapes; errors name the tensor and what is wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ort_c_api.h"

namespace vcdeploy {

using Shape = std::vector<std::int64_t>;

struct Tensor {
    Shape shape;
    const float* data;  // owned by the runtime
};

// Throws std::invalid_argument if it is missing or not float32.
Tensor tensor_of(const OrtApi& api, const OrtValue* value, const std::string& name);

// The elements of a tensor; throws std::invalid_argument unless it has this shape.
const float* elements(const Tensor& tensor, const std::string& name, const Shape& shape);

std::string to_string(const Shape& shape);

// An output of a node, or our own memory if the node omits it.
class Output {
  public:
    Output(const OrtApi& api, OrtKernelContext& context, std::size_t index, const Shape& shape);
    float* data() { return data_; }

  private:
    float* data_ = nullptr;
    std::vector<float> unwanted_;
};

}  // namespace vcdeploy
