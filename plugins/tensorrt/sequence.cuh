// Runs one sequence through one layer with a team of blocks: the loop over T that all kernels share.
//
// Every block of the team holds all of h and computes m and the mask itself, from the same numbers in the same order:
// all blocks agree bit for bit without waiting for each other. Rows of the weights are assigned in chunks, round-robin to
// the blocks of the team, so that every block has its part of any prefix. With contiguous rows per block, a small prefix
// would leave most blocks idle.
//
// Within a block, a lane computes a slice of a row (`multiply`): its partial sums go to shared memory, and after a barrier
// one thread per row adds the slices, in order. The products need no shuffles, and as a slice depends only on D, all paths
// give the same bits. If the partial sums of a block's rows don't fit, it reduces several times per step, tile by tile.
// tests/plugins/test_cuda_work.py holds the instructions of a step to formulas in a.
// The result of a row goes to all blocks of the team. How, and what a barrier is, depends on the team:
//
//     block.cuh      one block per sequence
//     cluster.cuh    one cluster per sequence, exchanging data in distributed shared memory
//     grid.cuh       many blocks per sequence, exchanging data in global memory
//
// A step, with its barriers in [ ]:
//
//     h from the last step's rows; partial sums of u·h + v·x  [partials]  m, e; hbar, xbar  [masked]
//     VCRNN, VCLSTM:  products  [sums]  rows, x of the next step, partial sums of v·x  [fresh]
//     VCGRU:          products  [sums]  r, z, V_h xbar  [reset]  product with U_h  [sums]  rows, x …  [fresh]
//
// Between two tiles: [tile].
// The last step has no [fresh]: a decoding step (T = 1) of VCRNN or VCLSTM has no barrier between blocks.
#pragma once

#include "call.h"
#include "units.cuh"

namespace vcdeploy {

constexpr int kMostWarps = 32;
constexpr int kScheduled = 4;    // dimensions of the logit per lane, while there are warps left
constexpr int kMostSums = 9216;  // partial sums of a tile, at least those of one chunk

// Partial sums of a chunk of rows and one gate. The pad keeps rows of different chunks in different banks.
constexpr int sums_of_chunk(int D, int chunk) { return (slices_of(D) + 1) * chunk; }

// Most chunks of a tile, for a block that may own all rows.
template <class Unit>
constexpr int tile_of(int D, int chunk) {
    const int fit = kMostSums / (Unit::gates * sums_of_chunk(D, chunk)), all = (padded(D) + chunk - 1) / chunk;
    return fit < 1 ? 1 : fit < all ? fit : all;
}

// Numbers of shared memory that every block needs: DoubledSums of the warps, and partial sums.
template <class Unit, class Team>
constexpr std::size_t shared_numbers(int D) {
    return 2 * kMostWarps + std::size_t(Unit::gates) * tile_of<Unit>(D, Team::chunk) * sums_of_chunk(D, Team::chunk);
}

// A block's own memory: vectors of padded(D) numbers, in shared memory or, if D is too large for it, in global memory.
template <class Unit, class Real>
struct Room {
    static constexpr int vectors = Unit::resets ? 7 : 4;

    Real* h;  // the state
    Real* x;  // the input of the coming step
    Real *hbar, *xbar;
    Real* reset;           // VCGRU: r ⊙ hbar
    Real *z, *from_input;  // VCGRU: of this block's rows, kept between the two phases of a step

    VCDEPLOY_DEVICE Room(Real* memory, int D) {
        const int size = padded(D);
        h = memory, x = h + size, hbar = x + size, xbar = hbar + size;
        reset = xbar + size, z = reset + size, from_input = z + size;
    }
};

// Team:
//     chunk                         rows that a block owns together: 4 or 8
//     rank(), members()             index of this block in the team, and number of blocks
//     put(vector, i, value)         all members can read the value after a barrier
//     read(from)                    reads an element of such a vector
//     barrier<name>()               barrier of the whole team
//     gathered(vector, count, own)  after a barrier: the vector in this block's memory
//     reset(), fresh(turn)          vectors for put
//     in_place()                    fresh is h itself. Between [masked] and [fresh] only the thread that adds a row's
//                                   slices accesses its dimension of h, so that a block that runs alone needs no second
//                                   vector
//
// A block has a power of two of warps.
template <class Unit, class Team, class Weight, class Activation, class Real>
struct Sequence {
    const Call<Weight, Activation, Real>& call;
    Team team;
    const int b;           // which sequence of the batch
    Real* const partials;  // [kMostWarps][2]: DoubledSums of the warps
    Real* const sums;      // [gates][call.tile][slices + 1][chunk]: partial sums of rows
    const Room<Unit, Real> room;
    Real* const cell;  // VCLSTM: [D]

    DoubledSum<Real> logit;  // this thread's part, for the next step to be scheduled
    Mask<Real> mask;
    int extent;

    // shared: shared_numbers().
    VCDEPLOY_DEVICE Sequence(const Call<Weight, Activation, Real>& call, Team team, int b, Real* shared, Real* memory,
                             Real* cell)
        : call(call), team(team), b(b), partials(shared), sums(shared + 2 * kMostWarps), room(memory, call.D),
          cell(cell), mask{0, call.sharpness, call.epsilon, call.D}, extent(0) {}

    VCDEPLOY_DEVICE std::size_t place(int t) const { return std::size_t(t) * call.B + b; }

    // Warps that share the logit: few, since each needs a tree of its lanes.
    VCDEPLOY_DEVICE int scheduling() const {
        const int warps = threads() / kWarp, wanted = (call.D + kWarp * kScheduled - 1) / (kWarp * kScheduled);
        return wanted < warps ? wanted : warps;
    }

    // x of step t, and v·x. Independent of the previous step, so it runs before the barrier that ends that step.
    VCDEPLOY_DEVICE void read_input(int t) {
        logit = {};
        const int stride = scheduling() * kWarp;
        for (int j = thread() < stride ? thread() : call.D; j < call.D; j += stride) {
            const Real x = widened<Real>(read_constant(call.X + place(t) * call.D + j));
            logit.add_product(widened<Real>(read_constant(call.v + j)), x);
            store(room.x + j, x);
        }
    }

    // The state before the first step.
    VCDEPLOY_DEVICE void begin() {
        const int stride = scheduling() * kWarp;  // each thread the dimensions it needs in `schedule`
        for (int j = thread() < stride ? thread() : call.D; j < call.D; j += stride)
            store(room.h + j, widened<Real>(read_constant(call.H0 + std::size_t(b) * call.D + j)));
        read_input(0);
    }

    // Computes m, hbar and xbar of step t. fresh: the first `count` dimensions of h, written by the last step's rows.
    VCDEPLOY_DEVICE void schedule(int t, const Real* fresh, int count) {
        const int warps = scheduling(), stride = warps * kWarp, lane = thread() % kWarp;
        if (thread() < stride) {
            for (int j = thread(); j < call.D; j += stride) {
                if (j < count) store(room.h + j, team.read(fresh + j));
                logit.add_product(widened<Real>(read_constant(call.u + j)), load(room.h + j));
            }
            logit = over_lanes(logit, kWarp);
            if (lane == 0) {
                store(partials + thread() / kWarp * 2, logit.high);
                store(partials + thread() / kWarp * 2 + 1, logit.low);
            }
        }
        block_barrier<Barrier::partials>();
        int group = 1;  // lanes that share a tree
        while (group < warps) group *= 2;
        DoubledSum<Real> whole;
        if (const int warp = lane % group; warp < warps)
            whole = {load(partials + warp * 2), load(partials + warp * 2 + 1)};
        whole = over_lanes(whole, group);
        whole.add(widened<Real>(read_constant(call.b)));
        mask.m = sigmoid(whole.total());
        extent = mask.extent(call.reach);
        if (team.rank() == 0 && thread() == 0) narrow(mask.m, call.M + place(t));

        for (int j = thread(); j < extent; j += threads()) {
            const bool inside = j < call.D;
            const Real e = mask(j);
            store(room.hbar + j, inside ? e * load(room.h + j) : Real(0));
            store(room.xbar + j, inside ? e * load(room.x + j) : Real(0));
        }
        block_barrier<Barrier::masked>();
    }

    // The k-th row of this block, and the number of its chunks among the first `count` rows.
    VCDEPLOY_DEVICE int own_row(int k) const {
        return (k / Team::chunk * team.members() + team.rank()) * Team::chunk + k % Team::chunk;
    }
    VCDEPLOY_DEVICE int own_chunks(int count) const {
        return ((count + Team::chunk - 1) / Team::chunk - team.rank() + team.members() - 1) / team.members();
    }

    // Multiplies this block's rows of the prefix (`multiply`), and calls use(i, sums) for each by one thread, always the
    // same one for a row.
    template <int First, int OfState, int OfInput, class Use>
    VCDEPLOY_DEVICE void products(const Real* state, const Use& use) {
        constexpr int chunk = Team::chunk, slices_a_warp = kWarp / chunk;
        constexpr int gates = OfState > OfInput ? OfState : OfInput;
        const int warp = thread() / kWarp, warps = threads() / kWarp, lane = thread() % kWarp;
        const int slices = call.slices, parts = slices / slices_a_warp, at_once = parts < warps ? parts : warps;
        const int a_chunk = (slices + 1) * chunk, a_gate = call.tile * a_chunk, chunks = own_chunks(extent);
        for (int first = 0; first < chunks; first += call.tile) {
            const int left = chunks - first, here = left < call.tile ? left : call.tile;
            if (first > 0) block_barrier<Barrier::tile>();
            for (int q = warp / at_once; q < here; q += warps / at_once)
                for (int part = warp % at_once; part < parts; part += at_once) {
                    const int slice = part * slices_a_warp + lane / chunk;
                    Real partial[gates] = {};
                    multiply<Unit::gates, First, OfState, OfInput>(call.U, call.V, call.D,
                                                                   own_row((first + q) * chunk + lane % chunk), slice,
                                                                   slices, state, room.xbar, extent, partial);
#pragma unroll
                    for (int g = 0; g < gates; ++g)
                        store(sums + g * a_gate + q * a_chunk + slice * chunk + lane % chunk, partial[g]);
                }
            block_barrier<Barrier::sums>();
            for (int k = thread(); k < here * chunk; k += threads()) {
                Real whole[gates] = {};
                for (int slice = 0; slice < slices; ++slice)
#pragma unroll
                    for (int g = 0; g < gates; ++g)
                        whole[g] =
                            sum(whole[g], load(sums + g * a_gate + k / chunk * a_chunk + slice * chunk + k % chunk));
                use(own_row(first * chunk + k), whole);
            }
        }
    }

    // Computes this block's rows of step t, and writes this thread's dimensions past the extent, which stay unchanged.
    VCDEPLOY_DEVICE void rows(int t, Real* fresh) {
        const bool last = t + 1 == call.T;
        const auto put_out = [&](int i, Real value) {
            write(t, i, value);
            if (!last) team.put(fresh, i, value);
        };
        if constexpr (Unit::resets) {
            products<0, 2, 3>(room.hbar, [&](int i, const Real* of_row) {
                Real z = 0, reset = 0;  // padding stays 0
                if (i < call.D) reset = Unit::reset(of_row, mask(i), load(room.hbar + i), z);
                store(room.z + i, z);
                store(room.from_input + i, of_row[2]);
                team.put(team.reset(), i, reset);
            });
            team.template barrier<Barrier::reset>();
            products<2, 1, 0>(team.gathered(team.reset(), extent, room.reset), [&](int i, const Real* of_row) {
                if (i >= call.D) return;
                put_out(i, Unit::updated(of_row[0], load(room.from_input + i), load(room.z + i), load(room.h + i)));
            });
        } else {
            // The first step reads all of C0, the last writes all of C.
            if constexpr (Unit::has_cell)
                if (t == 0)
                    each_own_row([&](int i) {
                        store(cell + i, widened<Real>(read_constant(call.C0 + std::size_t(b) * call.D + i)));
                    });
            products<0, Unit::gates, Unit::gates>(room.hbar, [&](int i, const Real* of_row) {
                if (i >= call.D) return;
                Real c = 0;
                if constexpr (Unit::has_cell) c = team.read(cell + i);
                put_out(i, Unit::updated(of_row, mask(i), load(room.h + i), c));
                if constexpr (Unit::has_cell) store(cell + i, c);
            });
            if constexpr (Unit::has_cell)
                if (last)
                    each_own_row([&](int i) { narrow(team.read(cell + i), call.C + std::size_t(b) * call.D + i); });
        }
        for (int i = extent + team.rank() * threads() + thread(); i < call.D; i += team.members() * threads())
            write(t, i, load(room.h + i));
    }

    // Calls use(i) for all rows of this block, each by the thread of `products`.
    template <class Use>
    VCDEPLOY_DEVICE void each_own_row(const Use& use) const {
        const int rows = own_chunks(call.D) * Team::chunk, a_tile = call.tile * Team::chunk;
        for (int first = 0; first < rows; first += a_tile)
            for (int k = thread(); k < a_tile && first + k < rows; k += threads())
                if (const int i = own_row(first + k); i < call.D) use(i);
    }

    VCDEPLOY_DEVICE void write(int t, int i, Real value) const {
        narrow(value, call.Y + place(t) * call.D + i);
        if (t + 1 == call.T) narrow(value, call.H + std::size_t(b) * call.D + i);
    }

    VCDEPLOY_DEVICE void run() {
        begin();
        int turn = 0, count = 0;  // which of fresh(0), fresh(1) was written last, and how many dimensions
        int waiting = 0;          // whether the others wait while this block runs alone
        for (int t = 0;;) {
            schedule(t, team.fresh(turn), count);
            if constexpr (Team::may_be_alone) {
                // All members have the same extent. The first of them runs small steps alone, up to the next large one:
                // block barriers are assumed to be much cheaper than grid barriers.
                const bool small = extent <= call.alone;
                if (small && !team.in_place()) {
                    waiting = t + 1 < call.T;
                    if (team.rank() > 0) {
                        if (!waiting) return;
                        grid_barrier<Barrier::alone>();
                        t = read_shared_by_grid(team.progress());
                        if (t == call.T) return;
                        turn = 1 - turn, count = call.alone;
                        read_input(t);
                        continue;
                    }
                    team.go_alone(room.reset, room.h);
                } else if (!small && team.in_place()) {
                    team.come_back();
                    turn = 1 - turn;
                    for (int j = thread(); j < call.alone; j += threads())
                        write_shared_by_grid(team.fresh(turn) + j, load(room.h + j));
                    meet_again(t);
                }
            }
            if (team.in_place())
                count = 0;
            else
                turn = 1 - turn, count = extent;
            rows(t, team.fresh(turn));
            if (++t == call.T) break;
            read_input(t);
            team.template barrier<Barrier::fresh>();
        }
        if constexpr (Team::may_be_alone)
            if (team.in_place() && waiting) meet_again(call.T);
    }

    // Tells the waiting blocks which step is next.
    VCDEPLOY_DEVICE void meet_again(int t) {
        if (thread() == 0) *team.progress() = t;
        grid_barrier<Barrier::alone>();
    }
};

}  // namespace vcdeploy
