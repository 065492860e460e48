// The memory that each path needs, from what its kernels say: for plan.h, and for the workspace.
#pragma once

#include "block.cuh"
#include "cluster.cuh"
#include "grid.cuh"
#include "plan.h"

namespace vcdeploy {

template <class Kind>
Needs needs_of(int D) {
    return {block_numbers<Kind>(D) * sizeof(float), cluster_numbers<Kind>(D) * sizeof(float),
            grid_numbers<Kind>(D, true) * sizeof(float), grid_numbers<Kind>(D, false) * sizeof(float), kClusterBlocks};
}

inline Needs needs_of(Unit unit, int D) {
    return unit == Unit::vcrnn ? needs_of<VCRNN>(D) : unit == Unit::vcgru ? needs_of<VCGRU>(D) : needs_of<VCLSTM>(D);
}

// Bytes of workspace that any plan of so many sequences needs, on any GPU: an engine is built before it is known which
// plans it will run.
inline std::size_t needed_workspace(Unit unit, int B, int D) {
    const std::size_t numbers = unit == Unit::vcrnn   ? grid_workspace_numbers<VCRNN>(D, B, kMostRooms)
                                : unit == Unit::vcgru ? grid_workspace_numbers<VCGRU>(D, B, kMostRooms)
                                                      : grid_workspace_numbers<VCLSTM>(D, B, kMostRooms);
    return numbers * sizeof(float);
}

}  // namespace vcdeploy
