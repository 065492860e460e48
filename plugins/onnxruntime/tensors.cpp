// Queries the runtime's tensors.
#include "tensors.h"

#include <memory>
#include <stdexcept>

#include "status.h"

namespace vcdeploy {

Tensor tensor_of(const OrtApi& api, const OrtValue* value, const std::string& name) {
    if (value == nullptr) throw std::invalid_argument("the input " + name + " is missing");
    OrtTensorTypeAndShapeInfo* found = nullptr;
    require(api, api.GetTensorTypeAndShape(value, &found));
    const auto release = [&api](OrtTensorTypeAndShapeInfo* each) { api.ReleaseTensorTypeAndShapeInfo(each); };
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release)> info(found, release);

    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    require(api, api.GetTensorElementType(info.get(), &type));
    if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
        throw std::invalid_argument(name + " must hold float32, not elements of type " + std::to_string(type));
    std::size_t dimensions = 0;
    require(api, api.GetDimensionsCount(info.get(), &dimensions));
    Tensor tensor{Shape(dimensions), nullptr};
    require(api, api.GetDimensions(info.get(), tensor.shape.data(), dimensions));
    void* data = nullptr;
    require(api, api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));  // only read here
    tensor.data = static_cast<const float*>(data);
    return tensor;
}

const float* elements(const Tensor& tensor, const std::string& name, const Shape& shape) {
    if (tensor.shape != shape)
        throw std::invalid_argument(name + " must have the shape " + to_string(shape) + ", not " +
                                    to_string(tensor.shape));
    return tensor.data;
}

std::string to_string(const Shape& shape) {
    std::string text;
    for (std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
    return "[" + text + "]";
}

Output::Output(const OrtApi& api, OrtKernelContext& context, std::size_t index, const Shape& shape) {
    std::size_t count = 0;
    require(api, api.KernelContext_GetOutputCount(&context, &count));
    OrtValue* value = nullptr;
    if (index < count) require(api, api.KernelContext_GetOutput(&context, index, shape.data(), shape.size(), &value));
    if (value != nullptr) {
        void* data = nullptr;
        require(api, api.GetTensorMutableData(value, &data));
        data_ = static_cast<float*>(data);
        return;
    }
    std::size_t size = 1;
    for (std::int64_t each : shape) size *= static_cast<std::size_t>(each);
    unwanted_.resize(size);
    data_ = unwanted_.data();
}

}  // namespace vcdeploy
