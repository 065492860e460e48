// Tensors of ONNX Runtime as pointers and shapes, with errors that say which tensor is wrong, and how.
#pragma once

#include <onnxruntime_c_api.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vcdeploy {

using Shape = std::vector<std::int64_t>;

struct Tensor {
    Shape shape;
    const float* data;  // owned by the runtime
};

// Throws std::invalid_argument where it is not there or holds no floats.
Tensor tensor_of(const OrtApi& api, const OrtValue* value, const std::string& name);

// The elements of a tensor that has to have this shape; throws std::invalid_argument where it has another.
const float* elements(const Tensor& tensor, const std::string& name, const Shape& shape);

std::string to_string(const Shape& shape);

// An output of a node, or memory of our own where the node has left it out.
class Output {
  public:
    Output(const OrtApi& api, OrtKernelContext& context, std::size_t index, const Shape& shape);
    float* data() { return data_; }

  private:
    float* data_ = nullptr;
    std::vector<float> unwanted_;
};

}  // namespace vcdeploy
