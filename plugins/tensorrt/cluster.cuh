// One cluster of blocks per sequence, which write into each other's shared memory: compute capability 9 and later.
//
// Bounds: eight multiprocessors read at most 8 * 64 bytes/clock from the L2 cache. In addition to the barriers within a
// block (block.cuh), there is 1 cluster barrier per step (VCGRU 2), assumed to take 0.3 microseconds with the writes
// before it. Weights used in every step may stay in the L1 caches (8 of them hold 1 to 1.5 MB), where the read bound
// does not apply. Read time + cluster barriers in µs/step at m = 0.4, calculated from data sheets as in block.cuh.
// Bandwidth bound, not measured; not run on a GPU:
//
//     |             | bytes/step, f32   | A100, L4    | H100      | H100, half weights |
//     | VCRNN-512   | 356 KB            | no clusters | 0.4 + 0.3 | 0.2 + 0.3          |
//     | VCGRU-512   | 1.07 MB           | no clusters | 1.1 + 0.6 | 0.5 + 0.6          |
//     | VCLSTM-512  | 1.42 MB           | no clusters | 1.4 + 0.3 | 0.7 + 0.3          |
//     | VCGRU-1024  | 4.15 MB           | no clusters | 4.1 + 0.6 | 2.0 + 0.6          |
#pragma once

#include "sequence.cuh"

namespace vcdeploy {

constexpr int kClusterBlocks = 8;  // the largest cluster size that all such GPUs support

template <class Real>
struct Cluster {
    static constexpr bool may_be_alone = false;
    static constexpr int chunk = 4;
    Real* of_reset;
    Real* exchange;  // fresh(0), fresh(1), each padded(D)
    int size, blocks;

    VCDEPLOY_DEVICE bool in_place() const { return false; }
    VCDEPLOY_DEVICE int rank() const { return cluster_rank(); }
    VCDEPLOY_DEVICE int members() const { return blocks; }
    VCDEPLOY_DEVICE Real* reset() const { return of_reset; }
    VCDEPLOY_DEVICE Real* fresh(int turn) const { return exchange + turn * size; }
    VCDEPLOY_DEVICE void put(Real* vector, int i, Real value) const {
        for (int rank = 0; rank < blocks; ++rank) store(in_block_of_cluster(vector, rank) + i, value);
    }
    VCDEPLOY_DEVICE Real read(const Real* from) const { return load(from); }
    template <Barrier name>
    VCDEPLOY_DEVICE void barrier() const {
        cluster_barrier<name>();
    }
    VCDEPLOY_DEVICE const Real* gathered(const Real* vector, int, Real*) const { return vector; }
};

// Shared memory per block in numbers: shared_numbers, room, exchanged vectors and cell.
template <class Unit>
constexpr std::size_t cluster_numbers(int D) {
    return shared_numbers<Unit, Cluster<float>>(D) +
           std::size_t(Room<Unit, float>::vectors + 2 + Unit::has_cell) * padded(D);
}

// Launched with B clusters of call.members blocks.
template <class Unit, class Weight, class Activation, class Real>
VCDEPLOY_KERNEL void VCDEPLOY_THREADS cluster_kernel(Call<Weight, Activation, Real> call) {
#if VCDEPLOY_CLUSTERS
    const int size = padded(call.D);
    Real* const shared = reinterpret_cast<Real*>(shared_memory());
    Real* const memory = shared + shared_numbers<Unit, Cluster<Real>>(call.D);
    Real* const exchange = memory + Room<Unit, Real>::vectors * size;
    const Room<Unit, Real> room(memory, call.D);
    const Cluster<Real> team{room.reset, exchange, size, call.members};
    cluster_barrier<Barrier::started>();
    Sequence<Unit, Cluster<Real>, Weight, Activation, Real>(call, team, block() / call.members, shared, memory,
                                                            exchange + 2 * size)
        .run();
#else
    stop();  // no plan launches this without clusters; if one did, fail instead of returning garbage
#endif
}

}  // namespace vcdeploy
