// Everything the kernels use from CUDA: threads, barriers, shuffles, memory, and arithmetic that must not be fused.
//
// nvcc compiles the definitions below. Without nvcc, plugins/emulator provides the same names on a CPU, where every
// thread is a fiber; no other kernel source depends on which of the two it is compiled for. Barriers have names so that
// the emulator can omit one of them and the tests can check that this is detected.
#pragma once

namespace vcdeploy {

enum class Barrier {
    started,   // all blocks of the cluster are running: their shared memory may be written
    partials,  // every warp has stored its part of the scheduler's sum
    masked,    // hbar and xbar are complete
    sums,      // the partial sums of a tile are complete
    tile,      // they have been added: the next tile may replace them
    reset,     // r ⊙ hbar of all rows is complete (VCGRU)
    gathered,  // r ⊙ hbar is in this block's own memory (grid)
    fresh,     // the new h of all rows is complete
    alone,     // the results of a block that ran alone are visible to the others (grid)
    next,      // no warp of this block still works on the previous sequence (grid)
    count
};

}  // namespace vcdeploy

#ifdef __CUDACC__

#include <cooperative_groups.h>
#include <cuda_fp16.h>

#define VCDEPLOY_KERNEL __global__
#define VCDEPLOY_DEVICE __device__ __forceinline__
// One block per multiprocessor is enough. Without the 1, ptxas saves registers for a second block, and spills.
#define VCDEPLOY_THREADS __launch_bounds__(512, 1)

namespace vcdeploy {

using Half = __half;

VCDEPLOY_DEVICE int thread() { return threadIdx.x; }
VCDEPLOY_DEVICE int threads() { return blockDim.x; }
VCDEPLOY_DEVICE int block() { return blockIdx.x; }
VCDEPLOY_DEVICE int blocks() { return gridDim.x; }

template <Barrier>
VCDEPLOY_DEVICE void block_barrier() {
    __syncthreads();
}

template <Barrier>
VCDEPLOY_DEVICE void grid_barrier() {
    cooperative_groups::this_grid().sync();
}

// Clusters need compute capability 9. For older GPUs, cluster kernels are compiled to stop immediately. PTX for an
// older GPU does so even if the driver compiles it for a newer one, so launch.cu checks what a kernel was compiled for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define VCDEPLOY_CLUSTERS 1
template <Barrier>
VCDEPLOY_DEVICE void cluster_barrier() {
    cooperative_groups::this_cluster().sync();
}
VCDEPLOY_DEVICE int cluster_rank() { return cooperative_groups::this_cluster().block_rank(); }
template <class T>
VCDEPLOY_DEVICE T* in_block_of_cluster(T* mine, int rank) {
    return cooperative_groups::this_cluster().map_shared_rank(mine, rank);
}
#else
#define VCDEPLOY_CLUSTERS 0
template <Barrier>
VCDEPLOY_DEVICE void cluster_barrier() {}
VCDEPLOY_DEVICE int cluster_rank() { return 0; }
template <class T>
VCDEPLOY_DEVICE T* in_block_of_cluster(T* mine, int) {
    return mine;
}
#endif

// Ends the kernel with an error.
VCDEPLOY_DEVICE void stop() { __trap(); }

VCDEPLOY_DEVICE float shuffle_xor(float value, int lanes) { return __shfl_xor_sync(0xffffffffu, value, lanes); }

// The block's dynamic shared memory, of the size requested at launch; aligned to 16 bytes.
VCDEPLOY_DEVICE char* shared_memory() {
    extern __shared__ uint4 vcdeploy_shared[];
    return reinterpret_cast<char*>(vcdeploy_shared);
}

template <std::size_t bytes>
struct BitsOf;
template <>
struct BitsOf<16> {
    using Type = uint4;
};
template <>
struct BitsOf<4> {
    using Type = unsigned int;
};
template <>
struct BitsOf<2> {
    using Type = unsigned short;
};

// The block's own memory: shared or, off chip, in the workspace.
template <class Pack>
VCDEPLOY_DEVICE Pack load(const Pack* from) {
    return *from;
}
template <class T>
VCDEPLOY_DEVICE void store(T* to, T value) {
    *to = value;
}

// Reads memory that nothing writes while the kernel runs.
template <class Pack>
VCDEPLOY_DEVICE Pack read_constant(const Pack* from) {
    const auto bits = __ldg(reinterpret_cast<const typename BitsOf<sizeof(Pack)>::Type*>(from));
    Pack pack;
    memcpy(&pack, &bits, sizeof(Pack));
    return pack;
}

// Reads memory that other blocks write: bypasses the L1 cache, which may hold an old value.
VCDEPLOY_DEVICE float read_shared_by_grid(const float* from) { return __ldcg(from); }
VCDEPLOY_DEVICE int read_shared_by_grid(const int* from) { return __ldcg(from); }
template <class T>
VCDEPLOY_DEVICE void write_shared_by_grid(T* to, T value) {
    *to = value;
}

// Sum and product, each rounded separately: the compiler does not fuse them with other operations.
VCDEPLOY_DEVICE float sum(float a, float b) { return __fadd_rn(a, b); }
VCDEPLOY_DEVICE float product(float a, float b) { return __fmul_rn(a, b); }
VCDEPLOY_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

VCDEPLOY_DEVICE float exponential(float x) { return expf(x); }
VCDEPLOY_DEVICE float hyperbolic_tangent(float x) { return tanhf(x); }
VCDEPLOY_DEVICE bool is_finite(float x) { return isfinite(x); }

template <class Real>
VCDEPLOY_DEVICE Real widened(float value) {
    return value;
}
template <class Real>
VCDEPLOY_DEVICE Real widened(Half value) {
    return __half2float(value);
}

VCDEPLOY_DEVICE void narrow(float value, float* to) { *to = value; }
VCDEPLOY_DEVICE void narrow(float value, Half* to) { *to = __float2half_rn(value); }

}  // namespace vcdeploy

#else
#include "emulated_device.h"
#endif
