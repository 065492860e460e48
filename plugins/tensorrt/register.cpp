// The self-registering library: loading it registers the creators of the plugin library.
#include <NvInferRuntime.h>

#include <cstdio>

extern "C" nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count);

namespace {

struct Registration {
    Registration() {
        // The virtual functions of the registry differ between major versions: calling another one's is undefined.
        if (const int major = getInferLibVersion() / 10000; major != NV_TENSORRT_MAJOR) {
            std::fprintf(
                stderr,
                "vcdeploy: nothing was registered: libvcdeploy_tensorrt_register.so was built for TensorRT %d, "
                "but TensorRT %d is loaded; rebuild it with the matching headers: vcdeploy plugin build\n",
                NV_TENSORRT_MAJOR, major);
            return;
        }
        int32_t count = 0;
        nvinfer1::IPluginCreatorInterface* const* creators = getCreators(count);
        for (int32_t k = 0; k < count; ++k)
            if (!getPluginRegistry()->registerCreator(*creators[k], ""))
                std::fprintf(stderr, "vcdeploy: plugin %d of %d was not registered; is it registered already?\n", k + 1,
                             count);
    }
} at_load;

}  // namespace
