// Calls every host method of the plugin as TensorRT would, with its real headers; needs neither libnvinfer nor a GPU.
// Without a GPU, methods that would launch must return an error and log it.
//
//     cmake --build BUILD --target host_test && BUILD/host_test BUILD/libvcdeploy_tensorrt.so [MAJOR]
//
// MAJOR: the calling TensorRT's major version, if it differs from that of the library's headers.
#include <NvInferRuntime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace nvinfer1;

namespace {

int failures = 0, checks = 0;
int major = NV_TENSORRT_MAJOR;
bool other_major = false;

void check(bool holds, const std::string& what) {
    ++checks;
    if (!holds) {
        ++failures;
        std::printf("FAILED: %s\n", what.c_str());
    }
}

struct Log final : ILogger, ILoggerFinder {
    std::string last;
    void log(Severity, const AsciiChar* message) noexcept override { last = message; }
    ILogger* findLogger() override { return this; }
} the_log;

// Whether the last line of the log contains `words`; clears it. A logger of another major version must not be called.
bool said(const std::string& words) {
    if (other_major) return the_log.last.empty();
    const bool found = the_log.last.find(words) != std::string::npos;
    if (!found) std::printf("the log has: %s\n", the_log.last.c_str());
    the_log.last.clear();
    return found;
}

// Dimensions as passed to getOutputShapes: known or, if negative, dynamic.
struct Dimension final : IDimensionExpr, apiv::VDimensionExpr {
    int64_t value;
    explicit Dimension(int64_t size) : value(size) { mImpl = this; }
    bool isConstant() const noexcept override { return value >= 0; }
    int64_t getConstantValue() const noexcept override {
        return isConstant() ? value : std::numeric_limits<int64_t>::min();
    }
    bool isSizeTensor() const noexcept override { return false; }
};

struct Builder final : IExprBuilder, apiv::VExprBuilder {
    std::deque<Dimension> all;
    bool fails = false;
    Builder() { mImpl = this; }
    const IDimensionExpr* constant(int64_t value) noexcept override { return &all.emplace_back(value); }
    const IDimensionExpr* operation(DimensionOperation, const IDimensionExpr& a,
                                    const IDimensionExpr& b) noexcept override {
        if (fails) return nullptr;
        const bool known = a.isConstant() && b.isConstant();  // the plugin only divides, rounding up
        return &all.emplace_back(known ? (a.getConstantValue() + b.getConstantValue() - 1) / b.getConstantValue() : -1);
    }
    const IDimensionExpr* declareSizeTensor(int32_t, const IDimensionExpr&, const IDimensionExpr&) noexcept override {
        return nullptr;
    }
};

struct Kind {
    const char* name;
    int gates, inputs, outputs;
};
constexpr Kind kKinds[] = {{"VCRNN", 1, 7, 3}, {"VCGRU", 3, 7, 3}, {"VCLSTM", 4, 8, 4}};

using Shapes = std::vector<std::vector<int64_t>>;

// X, H0, U, V, u, v, b and C0. columns: of a weight's 16 bytes, 4 in float32 and 8 in float16.
Shapes shapes_of(const Kind& kind, int64_t T, int64_t B, int64_t D, int64_t columns = 4) {
    const int64_t size = (D + 7) / 8 * 8;
    const std::vector<int64_t> packed{size / columns, size / 8, kind.gates, 8, columns};
    Shapes shapes{{T, B, D}, {B, D}, packed, packed, {D}, {D}, {1}, {B, D}};
    shapes.resize(kind.inputs);
    return shapes;
}

Dims dims_of(const std::vector<int64_t>& sizes) {
    Dims dims{};
    dims.nbDims = int32_t(sizes.size());
    for (std::size_t k = 0; k < sizes.size(); ++k) dims.d[k] = sizes[k];
    return dims;
}

// The tensors of a call: inputs, then outputs.
std::vector<DynamicPluginTensorDesc> described(const Kind& kind, const Shapes& shapes, DataType activation,
                                               DataType weight) {
    std::vector<DynamicPluginTensorDesc> all(kind.inputs + kind.outputs);
    for (int k = 0; k < kind.inputs + kind.outputs; ++k) {
        all[k].desc.type = k == 2 || k == 3 ? weight : activation;
        all[k].desc.format = TensorFormat::kLINEAR;
        if (k < kind.inputs) all[k].desc.dims = all[k].min = all[k].max = all[k].opt = dims_of(shapes[k]);
    }
    return all;
}

std::vector<PluginTensorDesc> plain(const std::vector<DynamicPluginTensorDesc>& all) {
    std::vector<PluginTensorDesc> descs;
    for (const auto& each : all) descs.push_back(each.desc);
    return descs;
}

std::unique_ptr<IPluginV3> created(IPluginCreatorV3One& creator, const std::vector<PluginField>& fields,
                                   TensorRTPhase phase = TensorRTPhase::kBUILD) {
    const PluginFieldCollection collection{int32_t(fields.size()), fields.data()};
    return std::unique_ptr<IPluginV3>(creator.createPlugin("node", &collection, phase));
}

template <class Capability>
Capability& as(IPluginV3& plugin, PluginCapabilityType type) {
    return *static_cast<Capability*>(plugin.getCapabilityInterface(type));
}
IPluginV3OneBuild& build_of(IPluginV3& plugin) { return as<IPluginV3OneBuild>(plugin, PluginCapabilityType::kBUILD); }
IPluginV3OneRuntime& runtime_of(IPluginV3& plugin) {
    return as<IPluginV3OneRuntime>(plugin, PluginCapabilityType::kRUNTIME);
}

void check_fields(IPluginCreatorV3One& creator, const std::string& name) {
    const PluginFieldCollection* names = creator.getFieldNames();
    check(names->nbFields == 2 && !std::strcmp(names->fields[0].name, "sharpness") &&
              !std::strcmp(names->fields[1].name, "epsilon"),
          name + " has the fields sharpness and epsilon");
    const auto number = [](const char* field, const float& value) {
        return PluginField(field, &value, PluginFieldType::kFLOAT32, 1);
    };
    const float two = 2.5f, small = 0.01f, zero = 0, half = 0.5f, below = -1, nan = std::nanf(""), infinite = HUGE_VALF;
    check(created(creator, {}) != nullptr, name + " without fields");
    auto plugin = created(creator, {number("epsilon", small), number("sharpness", two)});
    check(plugin && std::string(build_of(*plugin).getMetadataString()).find("sharpness 2.5") != std::string::npos,
          name + " takes its fields");
    const auto refused = [&](const std::vector<PluginField>& fields, const std::string& message) {
        check(!created(creator, fields), name + " refuses: " + message);
        check(said(message), name + " says: " + message);
    };
    for (const float& bad : {zero, below, nan, infinite})
        refused({number("sharpness", bad)}, "sharpness must be above 0");
    for (const float& bad : {zero, half, nan}) refused({number("epsilon", bad)}, "epsilon must be between 0 and 0.5");
    const int32_t whole = 1;
    refused({PluginField("sharpness", &whole, PluginFieldType::kINT32, 1)},
            "sharpness must be one number of type float32");
    refused({PluginField("epsilon", &small, PluginFieldType::kFLOAT32, 2)}, "epsilon must be one number");
    refused({PluginField("epsilon", nullptr, PluginFieldType::kFLOAT32, 1)}, "epsilon must be one number");
    refused({number("lambda", two)}, "no field lambda");
    setenv("VCDEPLOY_TENSORRT_PATH", "fast", 1);
    refused({}, "VCDEPLOY_TENSORRT_PATH is fast: choose from auto, block, cluster, grid, grid-off-chip");
    setenv("VCDEPLOY_TENSORRT_PATH", "grid", 1);
    check(created(creator, {}) != nullptr, name + " with a path of its own");
    unsetenv("VCDEPLOY_TENSORRT_PATH");
}

void check_types(IPluginV3& plugin, const Kind& kind) {
    IPluginV3OneBuild& build = build_of(plugin);
    const std::string name = kind.name;
    check(build.getNbOutputs() == kind.outputs, name + " counts its outputs");
    struct Choice {
        DataType activation, weight;
        bool runs;
    };
    const DataType f32 = DataType::kFLOAT, f16 = DataType::kHALF;
    for (const Choice& choice : {Choice{f32, f32, true},
                                 {f32, f16, true},
                                 {f16, f16, true},
                                 {f16, f32, false},
                                 {DataType::kINT8, f32, false},
                                 {f32, DataType::kBF16, false}}) {
        const Shapes shapes = shapes_of(kind, 5, 2, 7, choice.weight == f16 ? 8 : 4);
        auto all = described(kind, shapes, choice.activation, choice.weight);
        std::vector<DataType> types, out(kind.outputs, DataType::kBOOL);
        for (int k = 0; k < kind.inputs; ++k) types.push_back(all[k].desc.type);
        const int32_t failed = build.getOutputDataTypes(out.data(), kind.outputs, types.data(), kind.inputs);
        check((failed == 0) == choice.runs, name + " takes the right types only");
        for (DataType each : out)
            check(!choice.runs || each == choice.activation, name + "'s outputs have the type of X");
        bool supported = true;
        for (int k = 0; k < kind.inputs + kind.outputs; ++k)
            supported = supported && build.supportsFormatCombination(k, all.data(), kind.inputs, kind.outputs);
        check(supported == choice.runs, name + " supports the right combinations only");
        check((build.configurePlugin(all.data(), kind.inputs, all.data() + kind.inputs, kind.outputs) == 0) ==
                  choice.runs,
              name + " is configured with the right types only");
    }
    auto all = described(kind, shapes_of(kind, 5, 2, 7, 8), f32, f16);
    const auto configured = [&](const std::vector<DynamicPluginTensorDesc>& descs) {
        return build.configurePlugin(descs.data(), kind.inputs, descs.data() + kind.inputs, kind.outputs) == 0;
    };
    auto profile = all;
    ++profile[1].max.d[0];
    check(configured(profile), name + " takes a profile whose states may be more than X");
    ++profile[1].max.d[1];
    check(!configured(profile) && said("H0 must have the shape"), name + " is not configured with a wrong shape");
    for (int k = 1; k < kind.inputs + kind.outputs; ++k) {
        auto wrong = all;
        wrong[k].desc.type = k == 2 ? DataType::kINT8 : k == 3 ? f32 : f16;
        check(!build.supportsFormatCombination(k, wrong.data(), kind.inputs, kind.outputs),
              name + " sees a wrong type");
        wrong = all;
        wrong[k].desc.format = TensorFormat::kCHW32;
        check(!build.supportsFormatCombination(k, wrong.data(), kind.inputs, kind.outputs),
              name + " sees a wrong format");
    }
    check(!build.supportsFormatCombination(0, all.data(), kind.inputs - 1, kind.outputs), name + " counts inputs");
    check(said("outputs, not"), name + " reports the number of inputs");
    std::vector<DataType> types(kind.inputs, f32), out(kind.outputs);
    types[4] = f16;
    check(build.getOutputDataTypes(out.data(), kind.outputs, types.data(), kind.inputs) != 0,
          name + " compares u's type");
    check(said("u must have the type of X"), name + " names the tensor of the wrong type");
    check(build.getOutputDataTypes(out.data(), kind.outputs + 1, types.data(), kind.inputs) != 0,
          name + " counts outputs");
}

void check_shapes(IPluginV3& plugin, const Kind& kind) {
    IPluginV3OneBuild& build = build_of(plugin);
    const std::string name = kind.name;
    Builder builder;
    const auto expressed = [&](const Shapes& shapes) {
        std::vector<DimsExprs> all(shapes.size());
        for (std::size_t k = 0; k < shapes.size(); ++k) {
            all[k].nbDims = int32_t(shapes[k].size());
            for (std::size_t i = 0; i < shapes[k].size(); ++i) all[k].d[i] = &builder.all.emplace_back(shapes[k][i]);
        }
        return all;
    };
    DimsExprs out[4];
    const auto failed = [&](const Shapes& shapes) {
        auto in = expressed(shapes);
        return build.getOutputShapes(in.data(), int32_t(in.size()), nullptr, 0, out, kind.outputs, builder) != 0;
    };
    Shapes shapes = shapes_of(kind, -1, -1, 7);
    auto in = expressed(shapes);
    check(build.getOutputShapes(in.data(), kind.inputs, nullptr, 0, out, kind.outputs, builder) == 0,
          name + " has shapes");
    check(out[0].nbDims == 3 && out[0].d[0] == in[0].d[0] && out[0].d[1] == in[0].d[1] && out[0].d[2] == in[0].d[2],
          name + "'s Y is [T, B, D]");
    check(out[1].nbDims == 2 && out[1].d[0] == in[0].d[1] && out[1].d[1] == in[0].d[2], name + "'s H is [B, D]");
    check(out[2].nbDims == 2 && out[2].d[0] == in[0].d[0] && out[2].d[1] == in[0].d[1], name + "'s M is [T, B]");
    if (kind.outputs == 4)
        check(out[3].nbDims == 2 && out[3].d[0] == in[0].d[1] && out[3].d[1] == in[0].d[2], name + "'s C is [B, D]");
    check(build.getOutputShapes(in.data(), kind.inputs, nullptr, 1, out, kind.outputs, builder) != 0,
          "no shape tensors");
    check(!failed(shapes_of(kind, 3, 2, 7)), name + " takes known shapes");
    for (int k = 0; k < kind.inputs; ++k) {
        shapes = shapes_of(kind, 3, 2, 7);
        shapes[k].push_back(1);
        check(failed(shapes) && said("must have"), name + " sees a wrong rank");
        for (std::size_t axis = 0; k > 0 && axis < shapes[k].size() - 1; ++axis) {
            shapes = shapes_of(kind, 3, 2, 7);
            if (shapes[k].size() == 5 && (axis == 0 || axis == 4)) continue;  // depend on the type, not known here
            ++shapes[k][axis];
            check(failed(shapes) && said("along axis"), name + " sees a wrong size");
        }
    }
    builder.fails = true;
    check(failed(shapes_of(kind, 3, 2, 7)) && said("could not compute a shape"), name + " sees a failed operation");
    builder.fails = false;
    shapes = shapes_of(kind, 3, 2, 7);
    shapes.pop_back();
    check(failed(shapes) && said("outputs, not"), name + " counts inputs for shapes");

    const auto workspace = [&](int64_t B, int64_t D) {
        auto all = described(kind, shapes_of(kind, 5, B, D, 8), DataType::kFLOAT, DataType::kHALF);
        return build.getWorkspaceSize(all.data(), kind.inputs, all.data() + kind.inputs, kind.outputs);
    };
    for (const int64_t D : {7, 64, 16384})
        check(workspace(1, D) > 128 * 4 * D * sizeof(float) &&
                  workspace(8, D) - workspace(1, D) > 7 * 4 * D * sizeof(float),
              name + "'s workspace has rooms, and grows with the sequences");
    auto counted = described(kind, shapes_of(kind, 5, 1, 7, 8), DataType::kFLOAT, DataType::kHALF);
    check(build.getWorkspaceSize(counted.data(), kind.inputs - 1, counted.data(), kind.outputs) == SIZE_MAX &&
              said("outputs, not"),
          name + "'s workspace can't be had after an error");
    check(build.getValidTactics(nullptr, 0) == 0 && build.getNbTactics() == 0, name + " has no tactic without a GPU");
    check(build.getValidTactics(nullptr, 1) != 0 && said("0 tactics, not 1"), name + " counts tactics");
    check(build.getTimingCacheID() && std::strstr(build.getTimingCacheID(), "epsilon"), name + " has a timing cache");
}

void check_run(IPluginV3& plugin, const Kind& kind) {
    IPluginV3OneRuntime& runtime = runtime_of(plugin);
    const std::string name = kind.name;
    const bool gpu = access("/dev/nvidia0", F_OK) == 0;
    const auto changed = [&](const Shapes& shapes) {
        const auto descs = plain(described(kind, shapes, DataType::kFLOAT, DataType::kFLOAT));
        return runtime.onShapeChange(descs.data(), kind.inputs, descs.data() + kind.inputs, kind.outputs) == 0;
    };
    const auto refused = [&](const Shapes& shapes, const std::string& message) {
        check(!changed(shapes) && said(message), name + " refuses shapes: " + message);
    };
    for (int k = 1; k < kind.inputs; ++k) {
        Shapes shapes = shapes_of(kind, 3, 2, 7);
        ++shapes[k].back();
        refused(shapes, "must have the shape [");
    }
    refused(shapes_of(kind, 3, 2, 0), "D from 1 to 65536");
    refused(shapes_of(kind, 3, 2, 65537), "D from 1 to 65536");
    refused(shapes_of(kind, int64_t(1) << 31, 2, 7), "T up to 2^30");
    check(runtime.setTactic(6) != 0 && said("no tactic 6"), name + " knows its tactics");
    check(runtime.setTactic(1) == 0 && runtime.setTactic(0) == 0, name + " takes a tactic");
    const Shapes shapes = shapes_of(kind, 3, 2, 7);
    check(changed(shapes) == gpu, name + " is prepared where there is a GPU");
    if (gpu) return;  // launches are compared with the reference elsewhere
    check(said("no GPU to run on"), name + " says that there is no GPU");
    std::vector<float> memory(1024);
    std::vector<const void*> in(kind.inputs, memory.data());
    std::vector<void*> out(kind.outputs, memory.data());
    for (int T : {3, 0}) {
        const auto descs = plain(described(kind, shapes_of(kind, T, 2, 7), DataType::kFLOAT, DataType::kFLOAT));
        const int32_t failed =
            runtime.enqueue(descs.data(), descs.data() + kind.inputs, in.data(), out.data(), memory.data(), nullptr);
        check(failed != 0 && said("no GPU to run on"), name + "'s enqueue returns an error without a GPU");
    }
}

void check_copies(IPluginCreatorV3One& creator, const std::string& name) {
    const float two = 2.5f, small = 0.01f;
    auto plugin = created(creator, {PluginField("sharpness", &two, PluginFieldType::kFLOAT32, 1),
                                    PluginField("epsilon", &small, PluginFieldType::kFLOAT32, 1)});
    const std::string described = build_of(*plugin).getMetadataString();
    // As TensorRT does: keep the bytes of the fields, destroy the plugin, create another from them.
    std::vector<std::array<char, 4>> values;
    std::vector<PluginFieldType> types;
    std::vector<std::string> names;
    const PluginFieldCollection* kept = runtime_of(*plugin).getFieldsToSerialize();
    for (int k = 0; k < kept->nbFields; ++k) {
        const PluginField& field = kept->fields[k];
        check((field.type == PluginFieldType::kFLOAT32 || field.type == PluginFieldType::kINT32) && field.length == 1,
              name + " serializes numbers");
        std::memcpy(values.emplace_back().data(), field.data, 4);
        types.push_back(field.type);
        names.emplace_back(field.name);
    }
    std::unique_ptr<IPluginV3> copy(plugin->clone()), attached(runtime_of(*plugin).attachToContext(nullptr));
    check(copy && attached && copy.get() != plugin.get() && attached.get() != plugin.get(), name + " is copied");
    plugin.reset();
    std::vector<PluginField> fields;
    for (std::size_t k = 0; k < values.size(); ++k) fields.emplace_back(names[k].c_str(), &values[k], types[k], 1);
    auto restored = created(creator, fields, TensorRTPhase::kRUNTIME);
    check(restored != nullptr, name + " is restored");
    for (IPluginV3* each : {copy.get(), attached.get(), restored.get()}) {
        check(build_of(*each).getMetadataString() == described, name + "'s copies have its numbers");
        const PluginFieldCollection* again = runtime_of(*each).getFieldsToSerialize();
        for (std::size_t k = 0; k < values.size(); ++k)
            check(!std::memcmp(again->fields[k].data, values[k].data(), 4), name + "'s copies serialize alike");
        auto& core = as<IPluginV3OneCore>(*each, PluginCapabilityType::kCORE);
        check(core.getPluginName() == name && !std::strcmp(core.getPluginVersion(), "1") &&
                  !std::strcmp(core.getPluginNamespace(), ""),
              name + " has a name, version 1, and no namespace");
        check(!std::strcmp(core.getInterfaceInfo().kind, "PLUGIN_V3ONE_CORE") &&
                  !std::strcmp(build_of(*each).getInterfaceInfo().kind, "PLUGIN_V3ONE_BUILD") &&
                  !std::strcmp(runtime_of(*each).getInterfaceInfo().kind, "PLUGIN_V3ONE_RUNTIME"),
              name + "'s interfaces");
        check(!each->getCapabilityInterface(PluginCapabilityType(7)), name + " has no other interface");
    }
}

}  // namespace

// Replaces libnvinfer's version function.
extern "C" __attribute__((visibility("default"))) int32_t getInferLibVersion() noexcept { return major * 10000; }

int main(int count, char** arguments) {
    if (count != 2 && count != 3) return std::printf("usage: host_test libvcdeploy_tensorrt.so [MAJOR]\n"), 2;
    if ((other_major = count == 3)) major = std::atoi(arguments[2]);
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return std::printf("%s\n", dlerror()), 2;
    const auto get_creators =
        reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(dlsym(library, "getCreators"));
    const auto set_finder = reinterpret_cast<void (*)(ILoggerFinder*)>(dlsym(library, "setLoggerFinder"));
    if (!get_creators || !set_finder) return std::printf("getCreators or setLoggerFinder is not exported\n"), 2;
    int32_t creators = 0;
    IPluginCreatorInterface* const* list = get_creators(creators);
    check(creators == 3, "three creators");
    const float zero = 0;  // without a logger, the error goes to stderr
    check(!created(*static_cast<IPluginCreatorV3One*>(list[0]),
                   {PluginField("epsilon", &zero, PluginFieldType::kFLOAT32, 1)}),
          "an error without a logger");
    set_finder(&the_log);
    for (int k = 0; k < 3; ++k) {
        const Kind& kind = kKinds[k];
        check(!std::strcmp(list[k]->getInterfaceInfo().kind, "PLUGIN CREATOR_V3ONE"), "creators are of version 3");
        auto& creator = *static_cast<IPluginCreatorV3One*>(list[k]);
        check(!std::strcmp(creator.getPluginName(), kind.name) && !std::strcmp(creator.getPluginVersion(), "1") &&
                  !std::strcmp(creator.getPluginNamespace(), ""),
              std::string(kind.name) + " is found by name");
        check_fields(creator, kind.name);
        auto plugin = created(creator, {});
        check_types(*plugin, kind);
        check_shapes(*plugin, kind);
        check_run(*plugin, kind);
        check_copies(creator, kind.name);
    }
    std::printf("TensorRT %d.%d: %d checks, %d failed\n", NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, checks, failures);
    return failures ? 1 : 0;
}
