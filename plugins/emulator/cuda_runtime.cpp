// The emulated GPU: checks launches as CUDA does and returns its errors.
#include "cuda_runtime_api.h"

#include <cstring>

namespace vcdeploy::emulator {

namespace {

constexpr std::size_t kPermitted = 48 * 1024;  // bytes of shared memory, unless raised by cudaFuncSetAttribute

std::size_t permitted(const void* kernel) {
    const auto found = gpu().permitted.find(kernel);
    return found == gpu().permitted.end() ? kPermitted : found->second;
}

const cudaLaunchAttribute* attribute_of(const cudaLaunchConfig_t& config, cudaLaunchAttributeID id) {
    for (unsigned k = 0; k < config.numAttrs; ++k)
        if (config.attrs[k].id == id) return &config.attrs[k];
    return nullptr;
}

}  // namespace

Gpu& gpu() {
    static Gpu current;
    return current;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, const std::function<void()>& body) {
    Launch wanted{};
    wanted.blocks = int(config.gridDim.x), wanted.threads = int(config.blockDim.x);
    wanted.shared_bytes = config.dynamicSmemBytes;
    wanted.seed = gpu().seed, wanted.memory = gpu().memory;
    if (wanted.shared_bytes > permitted(kernel)) return cudaErrorInvalidValue;
    if (const auto* cluster = attribute_of(config, cudaLaunchAttributeClusterDimension)) {
        wanted.cluster = int(cluster->val.clusterDim.x);
        // Compiled for an older GPU, the kernel stops immediately.
        if (gpu().compiled_for < 90) return cudaErrorLaunchFailure;
        if (gpu().clusters == 0 || wanted.cluster > gpu().most_of_a_cluster || wanted.blocks % wanted.cluster != 0)
            return cudaErrorInvalidClusterSize;
    }
    if (const auto* cooperative = attribute_of(config, cudaLaunchAttributeCooperative)) {
        wanted.cooperative = cooperative->val.cooperative != 0;
        if (!gpu().cooperative) return cudaErrorInvalidValue;
        if (wanted.cooperative && wanted.blocks > gpu().multiprocessors * gpu().resident)
            return cudaErrorCooperativeLaunchTooLarge;
    }
    try {
        gpu().passed = run(wanted, body);
        return cudaSuccess;
    } catch (const std::exception& fault) {
        gpu().fault = fault.what();
        return cudaErrorLaunchFailure;
    }
}

}  // namespace vcdeploy::emulator

using vcdeploy::emulator::gpu;

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorNoDevice: return "cudaErrorNoDevice";
        case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
        case cudaErrorUnsupportedPtxVersion: return "cudaErrorUnsupportedPtxVersion";
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        case cudaErrorCooperativeLaunchTooLarge: return "cudaErrorCooperativeLaunchTooLarge";
        case cudaErrorInvalidClusterSize: return "cudaErrorInvalidClusterSize";
    }
    return "unknown";
}

const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorLaunchFailure ? gpu().fault.c_str() : "see the error name";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return gpu().present ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = gpu().multiprocessors; break;
        case cudaDevAttrCooperativeLaunch: *value = gpu().cooperative; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(gpu().shared_bytes); break;
        case cudaDevAttrClusterLaunch: *value = gpu().clusters > 0; break;
    }
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    attributes->ptxVersion = gpu().compiled_for;
    return gpu().compiled_for > 0 ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
    if (gpu().compiled_for == 0) return cudaErrorNoKernelImageForDevice;
    if (value < 0 || std::size_t(value) > gpu().shared_bytes) return cudaErrorInvalidValue;
    gpu().permitted[kernel] = std::size_t(value);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int,
                                                          std::size_t shared_bytes) {
    *blocks = shared_bytes <= vcdeploy::emulator::permitted(kernel) ? gpu().resident : 0;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
    const int blocks = int(config->attrs->val.clusterDim.x);
    if (blocks > gpu().most_of_a_cluster) return cudaErrorInvalidClusterSize;
    *clusters = gpu().clusters;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
