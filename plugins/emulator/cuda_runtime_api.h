// The part of the CUDA runtime that plugins/tensorrt calls, on top of the emulator: a GPU with properties set by a
// test.
//
// launch.cu and the plugin are compiled with this instead of CUDA's own header and launch on the emulator. Functions
// that must not be called while a stream is captured (allocate, wait, read back) are missing here, so that calls to
// them do not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "emulator.h"

// Names and values are those of CUDA.
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorNoDevice = 100,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorInvalidClusterSize = 912,
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrClusterLaunch = 120,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };
enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeClusterDimension = 4 };

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    dim3(unsigned blocks = 1) : x(blocks) {}
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    union {
        struct {
            unsigned x, y, z;
        } clusterDim;
        int cooperative;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned numAttrs = 0;
};
struct cudaFuncAttributes {
    int ptxVersion;
};

namespace vcdeploy::emulator {

struct Gpu {
    bool present = false;
    int multiprocessors = 0;
    std::size_t shared_bytes = 0;  // maximum per block
    bool cooperative = false;
    int clusters = 0;           // that run at once
    int resident = 1;           // blocks of a cooperative kernel per multiprocessor
    int compiled_for = 90;      // the architecture of the kernels' PTX
    int most_of_a_cluster = 8;  // largest cluster that fits
    std::uint64_t seed = 0;
    std::vector<Memory> memory;
    std::map<const void*, std::size_t> permitted{};  // shared memory limit per kernel
    std::set<Place> passed{};                        // barriers passed by the last launch
    std::string fault{};                             // error of the last launch
};

// The current GPU.
Gpu& gpu();

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, const std::function<void()>& body);

}  // namespace vcdeploy::emulator

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t shared_bytes);
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel, const cudaLaunchConfig_t* config);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);

template <class... Of, class... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Of...), Given&&... given) {
    return vcdeploy::emulator::launch(*config, reinterpret_cast<const void*>(kernel), [&] { kernel(given...); });
}
