// A cluster of blocks a sequence, which write into each other's shared memory: compute capability 9 and later.
//
// What bounds it: eight multiprocessors read 8 * 64 bytes a clock from the L2 cache; then the barriers of the cluster,
// 1 a step (VCGRU 2), about 0.3 microseconds each with the writes before them, besides those within a block
// (block.cuh). A weight that is used in every step may stay in its multiprocessor's own cache (8 of them hold 1 to 1.5
// MB), and then a step is bound by barriers alone. Estimates in microseconds a step (m = 0.4; reading + barriers) by
// data sheets, as in block.cuh; not run on a GPU:
//
//     |             | bytes a step, f32 | A100, L4    | H100      | H100, half weights |
//     | VCRNN-512   | 356 KB            | no clusters | 0.4 + 0.3 | 0.2 + 0.3          |
//     | VCGRU-512   | 1.07 MB           | no clusters | 1.1 + 0.6 | 0.5 + 0.6          |
//     | VCLSTM-512  | 1.42 MB           | no clusters | 1.4 + 0.3 | 0.7 + 0.3          |
//     | VCGRU-1024  | 4.15 MB           | no clusters | 4.1 + 0.6 | 2.0 + 0.6          |
#pragma once

#include "sequence.cuh"

namespace vcdeploy {

constexpr int kClusterBlocks = 8;  // the largest cluster that every such GPU runs

template <class Real>
struct Cluster {
    static constexpr bool may_be_alone = false;
    Real* of_reset;
    Real* exchange;  // fresh(0), fresh(1), each padded(D)
    int size, blocks;

    VCDEPLOY_DEVICE bool in_place() const { return false; }
    VCDEPLOY_DEVICE int rank() const { return cluster_rank(); }
    VCDEPLOY_DEVICE int members() const { return blocks; }
    VCDEPLOY_DEVICE Real* reset() const { return of_reset; }
    VCDEPLOY_DEVICE Real* fresh(int turn) const { return exchange + turn * size; }
    VCDEPLOY_DEVICE void put(Real* vector, int i, Real value) const {  // a lane a block
        const int lane = thread() % kWarp;
        if (lane < blocks) in_block_of_cluster(vector, lane)[i] = value;
    }
    VCDEPLOY_DEVICE Real read(const Real* from) const { return *from; }
    template <Barrier name>
    VCDEPLOY_DEVICE void barrier() const {
        cluster_barrier<name>();
    }
    VCDEPLOY_DEVICE const Real* gathered(const Real* vector, int, Real*) const { return vector; }
};

// Numbers of shared memory in each block: partials, room, what is exchanged, and the cell.
template <class Unit>
constexpr std::size_t cluster_numbers(int D) {
    return 2 * kMostWarps + std::size_t(Room<Unit, float>::vectors + 2 + Unit::has_cell) * padded(D);
}

// Launched with B clusters of call.members blocks.
template <class Unit, class Weight, class Activation, class Real>
VCDEPLOY_KERNEL void VCDEPLOY_THREADS cluster_kernel(Call<Weight, Activation, Real> call) {
#if VCDEPLOY_CLUSTERS
    const int size = padded(call.D);
    Real* const partials = reinterpret_cast<Real*>(shared_memory());
    Real* const memory = partials + 2 * kMostWarps;
    Real* const exchange = memory + Room<Unit, Real>::vectors * size;
    const Room<Unit, Real> room(memory, call.D);
    const Cluster<Real> team{room.reset, exchange, size, call.members};
    cluster_barrier<Barrier::started>();
    Sequence<Unit, Cluster<Real>, Weight, Activation, Real>(call, team, block() / call.members, partials, memory,
                                                            exchange + 2 * size)
        .run();
#else
    stop();  // no plan launches it where there are no clusters; should one, that must not pass for a result
#endif
}

}  // namespace vcdeploy
