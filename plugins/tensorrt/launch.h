// Plain functions around the kernels, so that any C++ compiler can compile the plugin: workspace, plan, launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "plan.h"

namespace vcdeploy {

struct Sizes {
    int T, B, D;
};

struct Tensors {
    const void* in[8];  // X, H0, U, V, u, v, b, C0 (VCLSTM only)
    void* out[4];       // Y, H, M, C (VCLSTM only)
};

// Bytes of workspace that any plan for B sequences needs.
std::size_t workspace_bytes(Unit unit, int B, int D);

// The plan for the current GPU, with its kernel prepared for launch; needs no stream and does not synchronize. Throws
// std::invalid_argument if `wanted` can't run, std::runtime_error with CUDA's message.
Plan prepared(Unit unit, Types types, int B, int D, Path wanted);

// Launches a prepared plan. U and V are packed (call.h). Does not allocate, synchronize or read back, so that a CUDA graph can capture it. B and D
// must be the plan's. T or B may be 0: then only the states are copied. Throws std::invalid_argument if U or V is not
// aligned to 16 bytes.
cudaError_t launch(Unit unit, Types types, const Plan& plan, Sizes sizes, float sharpness, float epsilon,
                   const Tensors& tensors, void* workspace, cudaStream_t stream);

}  // namespace vcdeploy
