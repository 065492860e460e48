// Chooses the kernel and the number of blocks from D, B, the types and the GPU, before anything is launched.
//
// The times below are bandwidth bounds and assumed barrier times from published figures. Not measured: not run on a
// GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "../common/spec.h"

namespace vcdeploy {

enum class Types { f32, half_weights, half };
// Off chip: the vectors are in the workspace. Together: no block continues alone.
enum class Path { automatic, block, cluster, grid, grid_off_chip, grid_together };

constexpr int kThreads = 512;    // per block
constexpr int kMostRooms = 128;  // most blocks of a grid with its vectors in the workspace

struct Device {
    int multiprocessors;
    std::size_t shared_bytes;  // that a block can request
    int grid_blocks;           // most blocks of a cooperative launch, which grid barriers need; 0: none
    int clusters;              // of Needs::cluster_blocks that run at once; 0 also if not compiled for them
    int rooms;                 // blocks whose vectors the workspace has room for
};

// Bytes of shared memory a block needs on each path, computed in shared_memory.cuh.
struct Needs {
    std::size_t block, cluster, grid, grid_off_chip;
    int cluster_blocks;  // per cluster
};

struct Plan {
    Path path;
    int blocks, members;  // in total; per sequence
    int alone;            // Call::alone
    bool on_chip;         // Call::on_chip
    std::size_t shared_bytes;
};

constexpr double kBytesAMicrosecond = 100e3;  // from the L2 cache to one multiprocessor: 64 bytes/clock at 1.6 GHz
constexpr double kClusterBarrier = 0.3;       // microseconds, assumed
constexpr double kGridBarrier = 1.5;

constexpr const char* kNoRoom =
    "the path grid needs a workspace for its vectors on this GPU, and the engine has none: build it on this GPU";

// The path with the shortest estimated step at m = 0.5. Throws std::invalid_argument if `wanted` can't run here.
inline Plan plan(Unit unit, std::size_t weight_bytes, int B, int D, const Needs& needs, const Device& device,
                 Path wanted) {
    const int cluster_blocks = needs.cluster_blocks;
    const auto up = [](int a, int b) { return (a + b - 1) / b; };
    const double barriers = spec_of(unit).resets ? 2 : 1;
    const auto bytes = [&](double active) { return 2.0 * gates_of(unit) * active * active * weight_bytes; };
    const double reading = bytes(D / 2.0) / kBytesAMicrosecond;  // microseconds, by one multiprocessor

    const bool on_chip = needs.grid <= device.shared_bytes && wanted != Path::grid_off_chip;
    const int resident = std::min(device.multiprocessors, device.grid_blocks);
    const int most = std::max(on_chip ? resident : std::min(resident, device.rooms), 1);
    const int teams = std::min(B, most);
    const int members = std::min(most / teams, D);  // the whole GPU, but no more blocks than rows
    const Plan block{Path::block, B, 1, 0, true, needs.block};
    const Plan cluster{Path::cluster, B * cluster_blocks, cluster_blocks, 0, true, needs.cluster};
    Plan grid{Path::grid, teams * members, members, 0, on_chip, on_chip ? needs.grid : needs.grid_off_chip};
    // The a at which one multiprocessor is estimated to read the weights in the time of the barriers it saves.
    if (B == 1 && wanted != Path::grid_together)
        grid.alone = int(std::min(double(D), std::sqrt(barriers * kGridBarrier * kBytesAMicrosecond / bytes(1))));

    const bool block_runs = needs.block <= device.shared_bytes;
    const bool cluster_runs = device.clusters > 0 && needs.cluster <= device.shared_bytes;
    const bool has_room = on_chip || device.rooms > 0, grid_runs = resident > 0 && has_room;
    const double never = HUGE_VAL;
    const double of_block = block_runs ? reading * up(B, device.multiprocessors) : never;
    const double of_cluster =
        !cluster_runs ? never : (reading / cluster_blocks + barriers * kClusterBarrier) * up(B, device.clusters);
    const double of_grid = grid_runs ? (reading / members + barriers * kGridBarrier) * up(B, teams) : never;

    const auto unless = [](bool runs, const char* what) {
        if (!runs) throw std::invalid_argument(what);
    };
    switch (wanted) {
        case Path::block: unless(block_runs, "the path block needs more shared memory than this GPU has"); return block;
        case Path::cluster:
            unless(
                cluster_runs,
                "the path cluster needs compute capability 9 or later, a plugin compiled for it, and shared memory for "
                "its vectors");
            return cluster;
        case Path::grid:
        case Path::grid_off_chip:
        case Path::grid_together:
            unless(resident > 0, "the path grid needs cooperative launches, which can't run on this GPU");
            unless(has_room, kNoRoom);
            return grid;
        case Path::automatic: break;
    }
    const double best = std::min({of_block, of_cluster, of_grid});
    unless(best < never || has_room, kNoRoom);
    unless(best < never,
           "no path runs on this GPU: D is too large for its shared memory, and it has no cooperative launches");
    return best == of_block ? block : best == of_cluster ? cluster : grid;
}

}  // namespace vcdeploy
