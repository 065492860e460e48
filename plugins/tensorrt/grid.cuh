// Many blocks per sequence, across the whole GPU, with grid barriers: for large D and few sequences.
//
// Bounds: while the weights stay in the L2 cache (40, 48 and 50 MB), barriers: 1 per step (VCGRU 2), assumed to take
// 1.5 microseconds each. The 108, 58 and 132 multiprocessors read at most 64 bytes/clock each from the L2 cache (A100:
// 5120 in total). Skipping then saves little, except where one block continues alone (Sequence::run). If other work
// evicts the weights between two calls, they come from memory (1555, 300 and 3350 GB/s), and the bound
// follows a². The last step has no barrier at its end: a decoding step (T = 1) has none in VCRNN and VCLSTM, one in
// VCGRU. Read time from L2 or from memory + barriers within a sequence, in µs/step at D = 1024, m = 0.4 (a = 416),
// calculated from data sheets with the clocks of block.cuh. Bandwidth bound, not measured; not run on a GPU:
//
//     |             | bytes/step, f32   | A100             | L4                | H100             |
//     | VCRNN-1024  | 1.38 MB           | 0.2 or 0.9 + 1.5 | 0.2 or 4.6 + 1.5  | 0.1 or 0.4 + 1.5 |
//     | VCGRU-1024  | 4.15 MB           | 0.6 or 2.7 + 3.0 | 0.5 or 13.8 + 3.0 | 0.2 or 1.2 + 3.0 |
//     | VCLSTM-1024 | 5.54 MB           | 0.8 or 3.6 + 1.5 | 0.7 or 18.5 + 1.5 | 0.3 or 1.7 + 1.5 |
//
// Half weights halve the first two numbers. Not included, in any path: the scheduler (u·h and v·x in every block), the
// barriers within the block, the sum of the slices, and the latency of everything.
#pragma once

#include "sequence.cuh"

namespace vcdeploy {

// The blocks of a sequence exchange data in global memory: fresh(0), fresh(1), reset and the cell, padded(D) each, and
// the progress of a block that runs alone. While alone, that block uses vectors of its own.
template <class Real>
struct Grid {
    static constexpr bool may_be_alone = true;
    static constexpr int chunk = 4;
    static constexpr int vectors = 4;
    Real* exchange;
    int size, place, blocks;
    Real *own_reset = nullptr, *own_h = nullptr;  // null unless alone

    VCDEPLOY_DEVICE void go_alone(Real* reset, Real* h) { own_reset = reset, own_h = h; }
    VCDEPLOY_DEVICE void come_back() { own_reset = own_h = nullptr; }
    VCDEPLOY_DEVICE bool in_place() const { return own_h != nullptr; }

    VCDEPLOY_DEVICE int rank() const { return place; }
    VCDEPLOY_DEVICE int members() const { return in_place() ? 1 : blocks; }
    VCDEPLOY_DEVICE Real* reset() const { return in_place() ? own_reset : exchange + 2 * size; }
    VCDEPLOY_DEVICE Real* fresh(int turn) const { return in_place() ? own_h : exchange + turn * size; }
    VCDEPLOY_DEVICE Real* cell() const { return exchange + 3 * size; }
    VCDEPLOY_DEVICE int* progress() const { return reinterpret_cast<int*>(exchange + vectors * size); }
    VCDEPLOY_DEVICE void put(Real* vector, int i, Real value) const {
        if (in_place())
            store(vector + i, value);
        else
            write_shared_by_grid(vector + i, value);
    }
    VCDEPLOY_DEVICE Real read(const Real* from) const { return read_shared_by_grid(from); }
    template <Barrier name>
    VCDEPLOY_DEVICE void barrier() const {
        if (in_place())
            block_barrier<name>();
        else
            grid_barrier<name>();
    }
    VCDEPLOY_DEVICE const Real* gathered(const Real* vector, int count, Real* own) const {
        if (!in_place()) {
            for (int j = thread(); j < count; j += threads()) store(own + j, read(vector + j));
            block_barrier<Barrier::gathered>();
        }
        return own;
    }

    static constexpr std::size_t numbers_a_sequence(int D) { return std::size_t(vectors) * padded(D) + 8; }
};

// Shared memory in numbers: shared_numbers and, on chip, the room.
template <class Unit>
constexpr std::size_t grid_numbers(int D, bool on_chip) {
    return shared_numbers<Unit, Grid<float>>(D) + (on_chip ? std::size_t(Room<Unit, float>::vectors) * padded(D) : 0);
}

// Workspace in numbers: exchanged vectors and, off chip, the rooms of `rooms` blocks.
template <class Unit>
constexpr std::size_t grid_workspace_numbers(int D, int B, int rooms) {
    return B * Grid<float>::numbers_a_sequence(D) + std::size_t(rooms) * Room<Unit, float>::vectors * padded(D);
}

// Launched cooperatively with a multiple of call.members blocks. call.alone is 0 unless there is one sequence.
template <class Unit, class Weight, class Activation, class Real>
VCDEPLOY_KERNEL void VCDEPLOY_THREADS grid_kernel(Call<Weight, Activation, Real> call) {
    const int size = padded(call.D), teams = blocks() / call.members;
    Real* const shared = reinterpret_cast<Real*>(shared_memory());
    Real* memory = shared + shared_numbers<Unit, Grid<Real>>(call.D);
    if (!call.on_chip)
        memory = call.workspace + call.B * Grid<Real>::numbers_a_sequence(call.D) +
                 std::size_t(block()) * Room<Unit, Real>::vectors * size;
    for (int first = 0; first < call.B; first += teams) {
        const int b = first + block() / call.members;
        if (first > 0) block_barrier<Barrier::next>();
        if (b < call.B) {
            Real* const exchange = call.workspace + b * Grid<Real>::numbers_a_sequence(call.D);
            const Grid<Real> team{exchange, size, block() % call.members, call.members};
            Sequence<Unit, Grid<Real>, Weight, Activation, Real>(call, team, b, shared, memory, team.cell()).run();
        } else {  // no sequence left: take part in the other teams' barriers
            for (int t = 0; t < call.T; ++t) {
                if constexpr (Unit::resets) grid_barrier<Barrier::reset>();
                if (t + 1 < call.T) grid_barrier<Barrier::fresh>();
            }
        }
    }
}

}  // namespace vcdeploy
