// A fake libnvinfer for test_tensorrt_plugin.py: little more than a plugin registry that prints what is registered.
// The environment variable FAKE_NVINFER_VERSION sets the version it reports; by default that of the headers.
#include <NvInferRuntime.h>

#include <cstdio>
#include <cstdlib>

using namespace nvinfer1;

namespace {

struct Registry final : IPluginRegistry {
    bool registerCreator(IPluginCreatorInterface& creator, const AsciiChar* space) noexcept override {
        const auto& each = static_cast<IPluginCreatorV3One&>(creator);
        std::printf("%s %s '%s'\n", each.getPluginName(), each.getPluginVersion(), space);
        std::fflush(stdout);
        return true;
    }
#if NV_TENSORRT_MAJOR < 11
    bool registerCreator(IPluginCreator&, const AsciiChar*) noexcept override { return false; }
    IPluginCreator* const* getPluginCreatorList(int32_t*) const noexcept override { return nullptr; }
    IPluginCreator* getPluginCreator(const AsciiChar*, const AsciiChar*, const AsciiChar*) noexcept override {
        return nullptr;
    }
    bool deregisterCreator(const IPluginCreator&) noexcept override { return false; }
#endif
    void setErrorRecorder(IErrorRecorder*) noexcept override {}
    IErrorRecorder* getErrorRecorder() const noexcept override { return nullptr; }
    bool isParentSearchEnabled() const override { return false; }
    void setParentSearchEnabled(bool) override {}
    PluginLibraryHandle loadLibrary(const AsciiChar*) noexcept override { return nullptr; }
    void deregisterLibrary(PluginLibraryHandle) noexcept override {}
    IPluginCreatorInterface* const* getAllCreators(int32_t*) const noexcept override { return nullptr; }
    IPluginCreatorInterface* getCreator(const AsciiChar*, const AsciiChar*, const AsciiChar*) noexcept override {
        return nullptr;
    }
    bool deregisterCreator(const IPluginCreatorInterface&) noexcept override { return false; }
    IPluginResource* acquirePluginResource(const AsciiChar*, IPluginResource*) noexcept override { return nullptr; }
    int32_t releasePluginResource(const AsciiChar*) noexcept override { return 0; }
    IPluginCreatorInterface* const* getAllCreatorsRecursive(int32_t*) noexcept { return nullptr; }  // not in 10.0
};

}  // namespace

extern "C" int32_t getInferLibVersion() noexcept {
    const char* said = std::getenv("FAKE_NVINFER_VERSION");
    return said ? std::atoi(said) : NV_TENSORRT_VERSION;
}

extern "C" IPluginRegistry* getPluginRegistry() noexcept {
    static Registry registry;
    return &registry;
}
