// One block a sequence: for a small D, and for batches that fill the GPU with sequences.
#pragma once

#include "sequence.cuh"

namespace vcdeploy {

template <class Real>
struct Block {
    static constexpr bool may_be_alone = false;
    Real *of_reset, *h;

    VCDEPLOY_DEVICE bool in_place() const { return true; }
    VCDEPLOY_DEVICE int rank() const { return 0; }
    VCDEPLOY_DEVICE int members() const { return 1; }
    VCDEPLOY_DEVICE Real* reset() const { return of_reset; }
    VCDEPLOY_DEVICE Real* fresh(int) const { return h; }
    VCDEPLOY_DEVICE void put(Real* vector, int i, Real value) const {
        if (thread() % kWarp == 0) vector[i] = value;
    }
    VCDEPLOY_DEVICE Real read(const Real* from) const { return *from; }
    template <Barrier name>
    VCDEPLOY_DEVICE void barrier() const { block_barrier<name>(); }
    VCDEPLOY_DEVICE const Real* gathered(const Real* vector, int, Real*) const { return vector; }
};

// Numbers of shared memory: partials, room, and the cell.
template <class Unit>
constexpr std::size_t block_numbers(int D) {
    return 2 * kMostWarps + std::size_t(Room<Unit, float>::vectors + Unit::has_cell) * padded(D);
}

// Launched with B blocks.
template <class Unit, class Weight, class Activation, class Real>
VCDEPLOY_KERNEL void VCDEPLOY_THREADS block_kernel(Call<Weight, Activation, Real> call) {
    Real* const partials = reinterpret_cast<Real*>(shared_memory());
    Real* const memory = partials + 2 * kMostWarps;
    Real* const cell = memory + Room<Unit, Real>::vectors * padded(call.D);
    const Room<Unit, Real> room(memory, call.D);
    const Block<Real> team{room.reset, room.h};
    Sequence<Unit, Block<Real>, Weight, Activation, Real>(call, team, block(), partials, memory, cell).run();
}

}  // namespace vcdeploy
