// Runs one sequence through one layer with a team of blocks: the loop over T that all kernels share.
//
// Every block of the team holds all of h and computes m and the mask itself, from the same numbers in the same order:
// all blocks agree bit for bit without waiting for each other. Rows of the weights are assigned round-robin to the
// blocks of the team, then to their warps, so that every block has its part of any prefix and the weights it reads grow
// with a². With contiguous rows per block, a small prefix would leave most blocks idle, and the weights read by the
// others would grow with a. This is about bytes; how time grows with a is not measured.
// The result of a row goes to all blocks of the team. How, and what a barrier is, depends on the team:
//
//     block.cuh      one block per sequence
//     cluster.cuh    one cluster per sequence, exchanging data in distributed shared memory
//     grid.cuh       many blocks per sequence, exchanging data in global memory
//
// A step, with its barriers in [ ]:
//
//     h from the last step's rows; partial sums of u·h + v·x  [partials]  m, e; hbar, xbar  [masked]
//     VCRNN, VCLSTM:  rows, x of the next step, partial sums of v·x  [fresh]
//     VCGRU:          r, z, V_h xbar  [reset]  rows, x of the next step, partial sums of v·x  [fresh]
//
// The last step has no [fresh]: a decoding step (T = 1) of VCRNN or VCLSTM has no barrier between blocks.
#pragma once

#include "call.h"
#include "units.cuh"

namespace vcdeploy {

constexpr int kMostWarps = 32;

// A block's own memory: vectors of padded(D) numbers, in shared memory or, if D is too large for it, in global memory.
template <class Unit, class Real>
struct Room {
    static constexpr int vectors = Unit::resets ? 7 : 4;

    Real* h;  // the state
    Real* x;  // the input of the coming step; a thread reads only what it wrote itself
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
//     rank(), members()             index of this block in the team, and number of blocks
//     put(vector, i, value)         called by a whole warp; all members can read the value after a barrier
//     read(from)                    reads an element of such a vector
//     barrier<name>()               barrier of the whole team
//     gathered(vector, count, own)  after a barrier: the vector in this block's memory
//     reset(), fresh(turn)          vectors for put
//     in_place()                    fresh is h itself. Between [masked] and [fresh] only a row's own warp accesses its
//                                   dimension of h, so that a block that runs alone needs no second vector
template <class Unit, class Team, class Weight, class Activation, class Real>
struct Sequence {
    const Call<Weight, Activation, Real>& call;
    Team team;
    const int b;           // which sequence of the batch
    Real* const partials;  // [kMostWarps][2]: DoubledSums of the warps
    const Room<Unit, Real> room;
    Real* const cell;  // VCLSTM: [D]

    DoubledSum<Real> logit;  // this thread's part, for the next step to be scheduled
    Mask<Real> mask;
    int extent;

    VCDEPLOY_DEVICE Sequence(const Call<Weight, Activation, Real>& call, Team team, int b, Real* partials, Real* memory,
                             Real* cell)
        : call(call), team(team), b(b), partials(partials), room(memory, call.D), cell(cell),
          mask{0, call.sharpness, call.epsilon, call.D}, extent(0) {}

    VCDEPLOY_DEVICE std::size_t place(int t) const { return std::size_t(t) * call.B + b; }

    // x of step t, and v·x. Independent of the previous step, so it runs before the barrier that ends that step.
    VCDEPLOY_DEVICE void read_input(int t) {
        logit = {};
        for (int j = thread(); j < call.D; j += threads()) {
            const Real x = widened<Real>(read_constant(call.X + place(t) * call.D + j));
            logit.add_product(widened<Real>(read_constant(call.v + j)), x);
            room.x[j] = x;
        }
    }

    // The state before the first step.
    VCDEPLOY_DEVICE void begin() {
        for (int j = thread(); j < call.D; j += threads())
            room.h[j] = widened<Real>(read_constant(call.H0 + std::size_t(b) * call.D + j));
        read_input(0);
    }

    // Computes m, hbar and xbar of step t. fresh: the first `count` dimensions of h, written by the last step's rows.
    VCDEPLOY_DEVICE void schedule(int t, const Real* fresh, int count) {
        for (int j = thread(); j < call.D; j += threads()) {
            if (j < count) room.h[j] = team.read(fresh + j);
            logit.add_product(widened<Real>(read_constant(call.u + j)), room.h[j]);
        }
        logit = over_lanes(logit);
        if (thread() % kWarp == 0) {
            partials[thread() / kWarp * 2] = logit.high;
            partials[thread() / kWarp * 2 + 1] = logit.low;
        }
        block_barrier<Barrier::partials>();
        DoubledSum<Real> whole;
        whole.add(widened<Real>(read_constant(call.b)));
        for (int warp = 0; warp < threads() / kWarp; ++warp)
            whole.add(DoubledSum<Real>{partials[warp * 2], partials[warp * 2 + 1]});
        mask.m = sigmoid(whole.total());
        extent = mask.extent(call.reach, call.vector);
        if (team.rank() == 0 && thread() == 0) narrow(mask.m, call.M + place(t));

        for (int j = thread(); j < extent; j += threads()) {
            const Real e = mask(j);
            room.hbar[j] = e * room.h[j];
            room.xbar[j] = e * room.x[j];
        }
        block_barrier<Barrier::masked>();
    }

    // Computes this warp's rows of step t, and writes this thread's dimensions past the extent, which stay unchanged.
    VCDEPLOY_DEVICE void rows(int t, Real* fresh) {
        const int warps = threads() / kWarp, lane = thread() % kWarp;
        const int first = thread() / kWarp * team.members() + team.rank(), stride = team.members() * warps;
        const Step<Weight, Real> step{call.U, call.V, call.D, call.vector, extent, mask, room.h, room.hbar, room.xbar};
        const bool last = t + 1 == call.T;

        const auto put_out = [&](int i, Real value) {
            if (lane == 0) write(t, i, value);
            if (!last) team.put(fresh, i, value);
        };
        if constexpr (Unit::resets) {
            for (int i = first; i < extent; i += stride) {
                Real z, from_input;
                team.put(team.reset(), i, Unit::reset(step, i, z, from_input));
                if (lane == 0) room.z[i] = z, room.from_input[i] = from_input;
            }
            team.template barrier<Barrier::reset>();
            const Real* all = team.gathered(team.reset(), extent, room.reset);
            for (int i = first; i < extent; i += stride)
                put_out(i, Unit::row(step, i, all, room.z[i], room.from_input[i]));
        } else if constexpr (Unit::has_cell) {
            // The first step reads all of C0, the last writes all of C.
            for (int i = first; i < (t == 0 || last ? call.D : extent); i += stride) {
                const std::size_t at = std::size_t(b) * call.D + i;
                Real c = t == 0 ? widened<Real>(read_constant(call.C0 + at)) : team.read(cell + i);
                if (i < extent) put_out(i, Unit::row(step, i, c));
                if (lane == 0) cell[i] = c;
                if (lane == 0 && last) narrow(c, call.C + at);
            }
        } else {
            Real none;
            for (int i = first; i < extent; i += stride) put_out(i, Unit::row(step, i, none));
        }
        for (int i = extent + team.rank() * threads() + thread(); i < call.D; i += team.members() * threads())
            write(t, i, room.h[i]);
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
                    for (int j = thread(); j < call.alone; j += threads()) team.fresh(turn)[j] = room.h[j];
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
