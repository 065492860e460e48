// plugins/tensorrt/launch.cu on the emulated GPU: the plan, the launch and the kernel as they are on a real one.
#include "../tensorrt/launch.cu"
