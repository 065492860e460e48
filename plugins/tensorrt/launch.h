// Plain functions around the kernels, so that any C++ compiler can compile the plugin: workspace, plan, launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "plan.h"

namespace vcdeploy {

struct Sizes {
    int T, B, D;
};

struct Tensors {
    const void* in[8];  // X, H0, U, V, u, v, b, C0 (VCLSTM only)
    void* out[4];       // Y, H, M, C (VCLSTM only)
};

// The number of blocks whose vectors are in the workspace on the current GPU: 0 if they fit its shared memory. Without
// a GPU, enough for any.
int rooms_needed(Unit unit, int D, Path wanted);

// Bytes of workspace that any plan for B sequences needs, with the vectors of `rooms` blocks.
std::size_t workspace_bytes(Unit unit, int B, int D, int rooms);

// The paths that the current GPU can run; none without a GPU.
std::vector<Path> runnable(Unit unit, Types types, int B, int D, int rooms);

// The plan for the current GPU, with its kernel prepared for launch; needs no stream and does not synchronize. rooms: of
// the workspace. Throws std::invalid_argument if `wanted` can't run, std::runtime_error with CUDA's message.
Plan prepared(Unit unit, Types types, int B, int D, Path wanted, int rooms);

// Launches a prepared plan. U and V are packed (call.h). Does not allocate, synchronize or read back, so that a CUDA graph can capture it. B and D
// must be the plan's. T or B may be 0: then only the states are copied. Throws std::invalid_argument if U or V is not
// aligned to 16 bytes.
cudaError_t launch(Unit unit, Types types, const Plan& plan, Sizes sizes, float sharpness, float epsilon,
                   const Tensors& tensors, void* workspace, cudaStream_t stream);

}  // namespace vcdeploy
