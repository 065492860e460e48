// The entry points of a TensorRT plugin library: one creator per unit, and the logger.
#include <array>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "log.h"
#include "plugin.h"

namespace vcdeploy {

using namespace nvinfer1;

namespace {

Path wanted_path() {
    const char* name = std::getenv("VCDEPLOY_TENSORRT_PATH");
    if (!name || !std::strcmp(name, "auto")) return Path::automatic;
    if (!std::strcmp(name, "block")) return Path::block;
    if (!std::strcmp(name, "cluster")) return Path::cluster;
    if (!std::strcmp(name, "grid")) return Path::grid;
    if (!std::strcmp(name, "grid-off-chip")) return Path::grid_off_chip;
    if (!std::strcmp(name, "grid-together")) return Path::grid_together;
    throw std::invalid_argument(std::string("VCDEPLOY_TENSORRT_PATH is ") + name +
                                ": choose from auto, block, cluster, grid, grid-off-chip, grid-together");
}

class UnitCreator final : public IPluginCreatorV3One {
  public:
    explicit UnitCreator(Unit unit)
        : unit_(unit), fields_{PluginField("sharpness", nullptr, PluginFieldType::kFLOAT32, 1),
                               PluginField("epsilon", nullptr, PluginFieldType::kFLOAT32, 1)},
          collection_{2, fields_} {}

    const char* getPluginName() const noexcept override { return spec_of(unit_).op; }
    const char* getPluginVersion() const noexcept override { return "1"; }
    const char* getPluginNamespace() const noexcept override { return ""; }
    const PluginFieldCollection* getFieldNames() noexcept override { return &collection_; }

    IPluginV3* createPlugin(const char* name, const PluginFieldCollection* given,
                            TensorRTPhase phase) noexcept override {
        try {
            float sharpness = 1, epsilon = 1e-3f;
            int32_t rooms = kMostRooms;  // serialized only; an engine without it was built with room for the most
            for (int k = 0; given && k < given->nbFields; ++k) {
                const PluginField& field = given->fields[k];
                if (phase == TensorRTPhase::kRUNTIME && !std::strcmp(field.name, "rooms")) {
                    if (field.type != PluginFieldType::kINT32 || field.length != 1 || !field.data)
                        throw std::invalid_argument("rooms must be one number of type int32");
                    std::memcpy(&rooms, field.data, sizeof rooms);
                    continue;
                }
                const bool is_sharpness = !std::strcmp(field.name, "sharpness");
                if (!is_sharpness && std::strcmp(field.name, "epsilon") != 0)
                    throw std::invalid_argument(std::string("no field ") + field.name +
                                                ": choose from sharpness, epsilon");
                if (field.type != PluginFieldType::kFLOAT32 || field.length != 1 || !field.data)
                    throw std::invalid_argument(std::string(field.name) + " must be one number of type float32");
                std::memcpy(is_sharpness ? &sharpness : &epsilon, field.data, sizeof(float));
            }
            return new UnitPlugin(unit_, sharpness, epsilon, rooms, wanted_path());
        } catch (const std::exception& error) {
            log_error(std::string(spec_of(unit_).op) + " " + (name ? name : "") + ": " + error.what());
            return nullptr;
        }
    }

  private:
    Unit unit_;
    PluginField fields_[2];
    PluginFieldCollection collection_;
};

}  // namespace
}  // namespace vcdeploy

#define VCDEPLOY_EXPORT extern "C" __attribute__((visibility("default")))

VCDEPLOY_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count) {
    static const auto creators = [] {
        std::array<nvinfer1::IPluginCreatorInterface*, vcdeploy::kVariableCount> all;
        for (int i = 0; i < vcdeploy::kVariableCount; ++i) all[i] = new vcdeploy::UnitCreator(vcdeploy::kUnits[i].unit);
        return all;  // static, since TensorRT requires them while the library is loaded
    }();
    count = vcdeploy::kVariableCount;
    return creators.data();
}

VCDEPLOY_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder) { vcdeploy::set_logger_finder(finder); }
