// A C function for ctypes that runs a plugin from its creator to enqueue on the emulated GPU
// (tests/plugins/emulated.py). Needs TensorRT's headers.
#include <NvInferRuntime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

using namespace nvinfer1;

extern "C" IPluginCreatorInterface* const* getCreators(int32_t& count);

namespace {

void need(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

template <class Capability>
Capability& as(IPluginV3& plugin, PluginCapabilityType type) {
    return *static_cast<Capability*>(plugin.getCapabilityInterface(type));
}

}  // namespace

// unit: 0, 1, 2 for VCRNN, VCGRU, VCLSTM. most: maximum T, B of the profile, for the workspace. tensors: the op's
// inputs, then its outputs; ranks, dims [.][5]: their shapes; half: 1 for float16, 0 for float32. tactic: the
// index of the one to use, or -1. Output: widest, the Scope of the barriers between the most threads, if above its value.
// Returns the number of tactics, or -1 with a message; the plugin logs to stderr.
extern "C" int vcdeploy_enqueue(int unit, const float* settings, const int* most, int inputs, int outputs,
                                void* const* tensors, const int* ranks, const long long* dims, const int* half,
                                unsigned long long seed, int tactic, int* widest, char* message, int length) {
    try {
        int32_t count = 0;
        auto& creator = *static_cast<IPluginCreatorV3One*>(getCreators(count)[unit]);
        const PluginField fields[] = {PluginField("sharpness", &settings[0], PluginFieldType::kFLOAT32, 1),
                                      PluginField("epsilon", &settings[1], PluginFieldType::kFLOAT32, 1)};
        const PluginFieldCollection given{2, fields};
        // The same sequence as in TensorRT: build, serialize, create again from the fields, attach to a context.
        const std::unique_ptr<IPluginV3> built(creator.createPlugin("node", &given, TensorRTPhase::kBUILD));
        need(built != nullptr, "createPlugin failed");
        auto& build = as<IPluginV3OneBuild>(*built, PluginCapabilityType::kBUILD);
        std::vector<DynamicPluginTensorDesc> all(inputs + outputs);
        std::vector<PluginTensorDesc> now;
        auto& gpu = vcdeploy::emulator::gpu();
        gpu.seed = seed;
        gpu.memory.clear();
        for (int k = 0; k < inputs + outputs; ++k) {
            auto& desc = all[k].desc;
            desc.type = half[k] ? DataType::kHALF : DataType::kFLOAT;
            desc.format = TensorFormat::kLINEAR;
            desc.dims.nbDims = ranks[k];
            long long size = half[k] ? 2 : 4;
            for (int axis = 0; axis < ranks[k]; ++axis) size *= desc.dims.d[axis] = dims[k * 5 + axis];
            now.push_back(desc);
            all[k].min = all[k].opt = all[k].max = desc.dims;
            if (k == 0) all[k].max.d[0] = most[0], all[k].max.d[1] = most[1];
            if (k == 1 || k == 7) all[k].max.d[0] = most[1];
            const auto* from = static_cast<const char*>(tensors[k]);
            gpu.memory.push_back({from, from + size});
        }
        for (int k = 0; k < inputs + outputs; ++k)
            need(build.supportsFormatCombination(k, all.data(), inputs, outputs), "a format is not supported");
        need(build.configurePlugin(all.data(), inputs, all.data() + inputs, outputs) == 0, "configurePlugin failed");
        const std::size_t bytes = build.getWorkspaceSize(all.data(), inputs, all.data() + inputs, outputs);
        need(bytes > 0, "getWorkspaceSize failed");
        std::vector<int32_t> tactics(build.getNbTactics());
        need(build.getValidTactics(tactics.data(), int32_t(tactics.size())) == 0, "getValidTactics failed");
        need(build.getTimingCacheID() != nullptr, "the timing cache is disabled");
        auto& before = as<IPluginV3OneRuntime>(*built, PluginCapabilityType::kRUNTIME);
        const std::unique_ptr<IPluginV3> restored(
            creator.createPlugin("node", before.getFieldsToSerialize(), TensorRTPhase::kRUNTIME));
        need(restored != nullptr, "createPlugin from serialized fields failed");
        const std::unique_ptr<IPluginV3> attached(
            as<IPluginV3OneRuntime>(*restored, PluginCapabilityType::kRUNTIME).attachToContext(nullptr));
        need(attached != nullptr, "attachToContext failed");
        auto& runtime = as<IPluginV3OneRuntime>(*attached, PluginCapabilityType::kRUNTIME);
        need(runtime.setTactic(tactic < 0 ? 0 : tactics.at(tactic)) == 0, "setTactic failed");
        need(runtime.onShapeChange(now.data(), inputs, now.data() + inputs, outputs) == 0, "onShapeChange failed");

        const std::size_t room = bytes / sizeof(float), guard = 64;
        const std::unique_ptr<float, void (*)(void*)> workspace(
            static_cast<float*>(std::aligned_alloc(256, (bytes + guard * sizeof(float) + 255) / 256 * 256)), std::free);
        std::fill_n(workspace.get(), room, std::numeric_limits<float>::quiet_NaN());
        std::fill_n(workspace.get() + room, guard, 7.0f);
        gpu.memory.push_back(
            {reinterpret_cast<char*>(workspace.get()), reinterpret_cast<char*>(workspace.get() + room)});
        const std::vector<const void*> in(tensors, tensors + inputs);
        need(runtime.enqueue(now.data(), now.data() + inputs, in.data(), tensors + inputs, workspace.get(), nullptr) ==
                 0,
             "enqueue failed");
        need(std::all_of(workspace.get() + room, workspace.get() + room + guard, [](float each) { return each == 7; }),
             "a block wrote past the workspace");
        for (const auto& [scope, name] : gpu.passed) *widest = std::max(*widest, int(scope));
        return int(tactics.size());
    } catch (const std::exception& error) {
        std::snprintf(message, length, "%s", error.what());
        return -1;
    }
}
