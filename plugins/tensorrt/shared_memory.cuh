// Bytes of memory that each path needs: shared memory per block for plan.h, and the workspace.
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

// Rows that a block owns together.
inline int chunk_of(Path path) {
    switch (path) {
        case Path::cluster: return Cluster<float>::chunk;
        case Path::grid: return Grid<float>::chunk;
        default: return Block<float>::chunk;
    }
}

inline Needs needs_of(Unit unit, int D) {
    return with_unit(unit, [D](auto kind) { return needs_of<decltype(kind)>(D); });
}

// Bytes of workspace that any plan for B sequences needs, with the vectors of `rooms` blocks.
inline std::size_t needed_workspace(Unit unit, int B, int D, int rooms) {
    return with_unit(unit,
                     [=](auto kind) { return grid_workspace_numbers<decltype(kind)>(D, B, rooms) * sizeof(float); });
}

}  // namespace vcdeploy
