// The self-registering twin: loading it registers the creators of the plugin library, for programs that only dlopen.
#include <NvInferRuntime.h>

#include <cstdio>

extern "C" nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count);

namespace {

struct Registration {
    Registration() {
        // The registry has other virtual functions in another major: to call them would be to call anything.
        if (const int major = getInferLibVersion() / 10000; major != NV_TENSORRT_MAJOR) {
            std::fprintf(
                stderr,
                "vcdeploy: nothing was registered: libvcdeploy_tensorrt_register.so was built for TensorRT %d, "
                "and this is %d; build it with the headers of that, by `vcdeploy plugin build`\n",
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
