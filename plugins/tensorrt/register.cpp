// The self-registering twin: loading it registers the creators of the plugin library, for programs that only dlopen.
#include <NvInferRuntime.h>

#include <cstdio>

extern "C" nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count);

namespace {

struct Registration {
    Registration() {
        int32_t count = 0;
        nvinfer1::IPluginCreatorInterface* const* creators = getCreators(count);
        for (int32_t k = 0; k < count; ++k)
            if (!getPluginRegistry()->registerCreator(*creators[k], ""))
                std::fprintf(stderr, "vcdeploy: plugin %d of %d was not registered; is it registered already?\n", k + 1,
                             count);
    }
} at_load;

}  // namespace
