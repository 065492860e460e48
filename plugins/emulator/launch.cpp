// Compiles plugins/tensorrt/launch.cu for the emulated GPU, unchanged: plan, launch and kernel.
#include "../tensorrt/launch.cu"
