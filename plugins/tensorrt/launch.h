// The kernels behind plain functions, so that the plugin is C++ for any compiler: what a call needs, and its launch.
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

// Bytes of workspace that any plan of so many sequences needs.
std::size_t workspace_bytes(Unit unit, int B, int D);

// The plan for the current GPU, whose kernel is made ready to be launched with it; needs no stream and waits for
// nothing. Throws std::invalid_argument where `wanted` can't run, std::runtime_error with what CUDA says.
Plan prepared(Unit unit, Types types, int B, int D, Path wanted);

// Launches a prepared plan: no allocation, no waiting, nothing read back, so that a graph may capture it. B and D are
// the plan's. T or B may be 0: then the states are copied.
cudaError_t launch(Unit unit, Types types, const Plan& plan, Sizes sizes, float sharpness, float epsilon,
                   const Tensors& tensors, void* workspace, cudaStream_t stream);

}  // namespace vcdeploy
