// One block per sequence: for small D, and for batches with enough sequences to fill the GPU.
//
// Bounds: one multiprocessor reads at most 64 bytes/clock from the L2 cache, and all weights of a step come that way
// (what is left of its L1 cache may keep some of them, where this bound does not apply). Barriers are within the block,
// 4 per step (VCGRU 6), and two more for every further tile. A step needs 2 * gates * a² weights (the kernel reads a few
// more columns and rows: Mask::extent). Time to read them in µs/step at D = 256, m = 0.4 (a = 109, sharpness 1),
// calculated from data sheets (clocks of 1.41, 2.04 and 1.98 GHz). Bandwidth bound, not measured; not run on a GPU:
//
//     |             | bytes/step, f32   | A100 | L4  | H100 | with half weights: A100 | L4  | H100 |
//     | VCRNN-256   | 95 KB             | 1.1  | 0.7 | 0.8  | 0.5                     | 0.4 | 0.4  |
//     | VCGRU-256   | 285 KB            | 3.2  | 2.2 | 2.3  | 1.6                     | 1.1 | 1.1  |
//     | VCLSTM-256  | 380 KB            | 4.2  | 2.9 | 3.0  | 2.1                     | 1.5 | 1.5  |
//
// With the whole state active, a step reads 5.5 times as many bytes. Counted in the emulator, VCGRU-256 in f32: 2,603
// warp instructions per step at an extent of 72, 18,611 at 256 (tests/plugins/test_cuda_work.py). How time grows is not
// measured.
#pragma once

#include "sequence.cuh"

namespace vcdeploy {

template <class Real>
struct Block {
    static constexpr bool may_be_alone = false;
    static constexpr int chunk = 8;
    Real *of_reset, *h;

    VCDEPLOY_DEVICE bool in_place() const { return true; }
    VCDEPLOY_DEVICE int rank() const { return 0; }
    VCDEPLOY_DEVICE int members() const { return 1; }
    VCDEPLOY_DEVICE Real* reset() const { return of_reset; }
    VCDEPLOY_DEVICE Real* fresh(int) const { return h; }
    VCDEPLOY_DEVICE void put(Real* vector, int i, Real value) const { store(vector + i, value); }
    VCDEPLOY_DEVICE Real read(const Real* from) const { return load(from); }
    template <Barrier name>
    VCDEPLOY_DEVICE void barrier() const {
        block_barrier<name>();
    }
    VCDEPLOY_DEVICE const Real* gathered(const Real* vector, int, Real*) const { return vector; }
};

// Shared memory in numbers: shared_numbers, room and cell.
template <class Unit>
constexpr std::size_t block_numbers(int D) {
    return shared_numbers<Unit, Block<float>>(D) + std::size_t(Room<Unit, float>::vectors + Unit::has_cell) * padded(D);
}

// Launched with B blocks.
template <class Unit, class Weight, class Activation, class Real>
VCDEPLOY_KERNEL void VCDEPLOY_THREADS block_kernel(Call<Weight, Activation, Real> call) {
    Real* const shared = reinterpret_cast<Real*>(shared_memory());
    Real* const memory = shared + shared_numbers<Unit, Block<Real>>(call.D);
    Real* const cell = memory + Room<Unit, Real>::vectors * padded(call.D);
    const Room<Unit, Real> room(memory, call.D);
    const Block<Real> team{room.reset, room.h};
    Sequence<Unit, Block<Real>, Weight, Activation, Real>(call, team, block(), shared, memory, cell).run();
}

}  // namespace vcdeploy
