// One block per sequence: for small D, and for batches with enough sequences to fill the GPU.
//
// Bounds: one multiprocessor reads at most 64 bytes/clock from the L2 cache, and all weights of a step come that way
// (up to 100 to 200 KB of them may stay in its L1 cache, where this bound does not apply). Barriers are within the
// block, 3 per step (VCGRU 4), assumed to take 20 to 40 ns each. A step needs 2 * gates * a² weights (the kernel reads
// a few more columns and rows: Mask::extent). Time to read them in µs/step at D = 256, m = 0.4 (a = 109, sharpness 1),
// calculated from data sheets (clocks of 1.41, 2.04 and 1.98 GHz). Bandwidth bound, not measured; not run on a GPU:
//
//     |             | bytes/step, f32   | A100 | L4  | H100 | with half weights: A100 | L4  | H100 |
//     | VCRNN-256   | 95 KB             | 1.1  | 0.7 | 0.8  | 0.5                     | 0.4 | 0.4  |
//     | VCGRU-256   | 285 KB            | 3.2  | 2.2 | 2.3  | 1.6                     | 1.1 | 1.1  |
//     | VCLSTM-256  | 380 KB            | 4.2  | 2.9 | 3.0  | 2.1                     | 1.5 | 1.5  |
//
// With the whole state active, a step reads 5.5 times as many bytes. Whether time grows as much is not measured.
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
    VCDEPLOY_DEVICE void barrier() const {
        block_barrier<name>();
    }
    VCDEPLOY_DEVICE const Real* gathered(const Real* vector, int, Real*) const { return vector; }
};

// Shared memory in numbers: partials, room and cell.
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
