// A unit as a TensorRT IPluginV3: types, shapes, serialization and the kernel launch. One class for all three units.
#pragma once

#include <NvInferRuntime.h>

#include <array>
#include <optional>
#include <string>

#include "launch.h"

namespace vcdeploy {

class UnitPlugin final : public nvinfer1::IPluginV3,
                         public nvinfer1::IPluginV3OneCore,
                         public nvinfer1::IPluginV3OneBuild,
                         public nvinfer1::IPluginV3OneRuntime {
  public:
    // rooms: blocks whose vectors the engine's workspace has room for. Throws std::invalid_argument unless sharpness is
    // above 0 and finite, epsilon between 0 and 0.5, and rooms valid.
    UnitPlugin(Unit unit, float sharpness, float epsilon, int32_t rooms, Path wanted);

    // Not copyable: the fields point to members of this object.
    UnitPlugin(const UnitPlugin&) = delete;
    UnitPlugin& operator=(const UnitPlugin&) = delete;

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
    nvinfer1::IPluginV3* clone() noexcept override;

    const char* getPluginName() const noexcept override { return spec_of(unit_).op; }
    const char* getPluginVersion() const noexcept override { return "1"; }
    const char* getPluginNamespace() const noexcept override { return ""; }

    int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc* in, int32_t inputs,
                            const nvinfer1::DynamicPluginTensorDesc* out, int32_t outputs) noexcept override;
    int32_t getOutputDataTypes(nvinfer1::DataType* types, int32_t outputs, const nvinfer1::DataType* of_inputs,
                               int32_t inputs) const noexcept override;
    int32_t getOutputShapes(const nvinfer1::DimsExprs* in, int32_t inputs, const nvinfer1::DimsExprs* shape_inputs,
                            int32_t shapes, nvinfer1::DimsExprs* out, int32_t outputs,
                            nvinfer1::IExprBuilder& builder) noexcept override;
    bool supportsFormatCombination(int32_t position, const nvinfer1::DynamicPluginTensorDesc* in_out, int32_t inputs,
                                   int32_t outputs) noexcept override;
    int32_t getNbOutputs() const noexcept override { return outputs(); }
    size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc* in, int32_t inputs,
                            const nvinfer1::DynamicPluginTensorDesc* out, int32_t outputs) const noexcept override;
    // The tactics are the paths (plan.h) that the GPU can run; the builder times them. Forced by wanted_: none.
    int32_t getValidTactics(int32_t* tactics, int32_t count) noexcept override;
    int32_t getNbTactics() noexcept override { return int32_t(tactics_.size()); }
    const char* getTimingCacheID() noexcept override { return description_.c_str(); }
    const char* getMetadataString() noexcept override { return description_.c_str(); }

    int32_t setTactic(int32_t tactic) noexcept override;
    int32_t onShapeChange(const nvinfer1::PluginTensorDesc* in, int32_t inputs, const nvinfer1::PluginTensorDesc* out,
                          int32_t outputs) noexcept override;
    int32_t enqueue(const nvinfer1::PluginTensorDesc* in, const nvinfer1::PluginTensorDesc* out,
                    const void* const* inputs, void* const* outputs, void* workspace,
                    cudaStream_t stream) noexcept override;
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override { return clone(); }
    const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override;

  private:
    // The plan and the sizes it is for, so that enqueue only has to launch.
    struct Prepared {
        Types types;
        int B, D;
        Plan plan;
    };

    int inputs() const { return spec_of(unit_).inputs(); }
    int outputs() const { return spec_of(unit_).outputs(); }
    void expect_counts(int32_t inputs, int32_t outputs) const;
    template <class TypeOf>
    Types types_of(const TypeOf& type_of) const;
    template <class DimsOf>
    Sizes sizes_of(Types types, const DimsOf& dims_of) const;
    const Prepared& prepare(Types types, const Sizes& sizes);

    Unit unit_;
    float sharpness_, epsilon_;
    int32_t rooms_;
    Path wanted_, tactic_ = Path::automatic;
    std::vector<Path> tactics_;
    std::string description_;
    std::array<nvinfer1::PluginField, 3> fields_;
    nvinfer1::PluginFieldCollection collection_;
    std::optional<Prepared> prepared_;
};

}  // namespace vcdeploy
