// The scheduler: which thread runs next, and when a barrier or shuffle releases its threads.
#include "emulator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "fiber.h"

namespace vcdeploy::emulator {
namespace {

constexpr int kLanes = 32;
constexpr std::size_t kStack = 64 * 1024;
constexpr std::size_t kGuard = 256;      // bytes after the shared memory that must not change
constexpr char kUnwritten = char(0xFF);  // all ones: a NaN in every precision

enum class State { ready, shuffling, waiting, ended };

struct Block;

struct Thread {
    Fiber fiber;
    Block* block = nullptr;
    int index = 0;
    State state = State::ready;
    Place place{};  // the barrier it waits at
    int lanes = 0;  // the lane mask of its shuffle
    std::uint64_t given = 0, taken = 0;
    Counts work{};
};

struct Block {
    int index = 0;
    bool started = false;
    int ended = 0;
    std::vector<Thread> threads;
    std::vector<int> order;  // order of warps
    std::unique_ptr<char[]> shared;
};

struct Machine {
    const Launch& launch;
    const std::function<void()>& kernel;
    std::mt19937_64 draw;
    std::vector<Block> blocks;
    std::vector<int> order;  // order of blocks
    std::unique_ptr<char[]> stacks;
    std::set<Place> passed;
    std::string fault;
    Thread* running = nullptr;
    const Memory* last = nullptr;  // accessed last
};

Machine* machine = nullptr;

std::string name_of(const Thread& thread) {
    return "thread " + std::to_string(thread.index) + " of block " + std::to_string(thread.block->index);
}

void body() {
    machine->kernel();
    machine->running->state = State::ended;
    ++machine->running->block->ended;
    machine->running->fiber.give_way();
}

void shuffle_order(std::vector<int>& order) { std::shuffle(order.begin(), order.end(), machine->draw); }

// Runs the ready lanes of a warp, each until it waits, then their shuffle if all lanes reached it. Returns false if no
// lane was ready.
bool run_warp(Block& block, int warp) {
    Thread* lanes = &block.threads[std::size_t(warp) * kLanes];
    const int turn = int(machine->draw() % kLanes);  // the first lane to run
    bool any = false;
    for (int k = 0; k < kLanes; ++k) {
        Thread& lane = lanes[(k + turn) % kLanes];
        if (lane.state != State::ready) continue;
        any = true;
        machine->running = &lane;
        lane.fiber.go_on();
        if (!machine->fault.empty()) throw Fault(machine->fault);
    }
    const auto alike = [&](const Thread& lane) { return lane.state == State::shuffling && lane.lanes == lanes->lanes; };
    if (std::all_of(lanes, lanes + kLanes, alike)) {
        for (int k = 0; k < kLanes; ++k) lanes[k].taken = lanes[k ^ lanes->lanes].given;
        for (int k = 0; k < kLanes; ++k) lanes[k].state = State::ready;
    }
    return any;
}

// Releases the threads of blocks [from, to) if all of them wait at the same barrier of this scope; returns whether.
bool release(Scope scope, int from, int to) {
    auto& blocks = machine->blocks;
    const Thread& first = blocks[from].threads[0];
    if (first.state != State::waiting || first.place.first != scope) return false;
    for (int k = from; k < to; ++k)
        for (const Thread& each : blocks[k].threads)
            if (each.state != State::waiting || each.place != first.place) return false;
    for (int k = from; k < to; ++k)
        for (Thread& each : blocks[k].threads) each.state = State::ready;
    machine->passed.insert(first.place);
    return true;
}

// Runs blocks [from, to), which may wait for each other, until all have ended.
void run_together(int from, int to) {
    const Launch& launch = machine->launch;
    const bool at_random = launch.seed % 2 == 0;
    auto& blocks = machine->blocks;
    std::vector<int> order(to - from);
    std::iota(order.begin(), order.end(), from);
    shuffle_order(order);
    const auto warp_of = [&](Block& block) {
        if (block.ended == launch.threads) return false;
        if (at_random) shuffle_order(block.order);
        block.started = true;
        return std::any_of(block.order.begin(), block.order.end(), [&](int warp) { return run_warp(block, warp); }) ||
               release(Scope::block, block.index, block.index + 1);
    };
    for (;;) {
        if (at_random) shuffle_order(order);
        if (std::any_of(order.begin(), order.end(), [&](int k) { return warp_of(blocks[k]); })) continue;
        bool released = false;
        for (int k = from; k < to; k += launch.cluster)
            released = released || release(Scope::cluster, k, k + launch.cluster);
        if (!released) released = launch.cooperative && release(Scope::grid, from, to);
        if (!released) break;
        shuffle_order(order);
        for (int k = from; k < to; ++k) shuffle_order(blocks[k].order);
    }
    for (int k = from; k < to; ++k)
        for (const Thread& each : blocks[k].threads)
            if (each.state != State::ended)
                throw Fault(name_of(each) + (each.state == State::shuffling
                                                 ? " waits at a shuffle that not all lanes of its warp reach"
                                                 : " waits at a barrier that not all threads reach"));
}

}  // namespace

std::set<Place> run(const Launch& launch, const std::function<void()>& kernel) {
    if (launch.blocks < 1 || launch.threads < kLanes || launch.threads % kLanes != 0 || launch.cluster < 1 ||
        launch.blocks % launch.cluster != 0)
        throw std::invalid_argument("invalid launch: blocks, threads or cluster");
    Machine here{launch, kernel, std::mt19937_64(launch.seed), std::vector<Block>(launch.blocks), {}, {}, {}, {}};
    machine = &here;
    here.stacks.reset(new char[kStack * launch.threads * launch.blocks]);
    for (int k = 0; k < launch.blocks; ++k) {
        Block& block = here.blocks[k];
        block.index = k;
        block.threads = std::vector<Thread>(launch.threads);
        block.order.resize(launch.threads / kLanes);
        std::iota(block.order.begin(), block.order.end(), 0);
        shuffle_order(block.order);
        block.shared.reset(new char[launch.shared_bytes + kGuard]);
        std::memset(block.shared.get(), kUnwritten, launch.shared_bytes + kGuard);
        for (int i = 0; i < launch.threads; ++i) {
            Thread& each = block.threads[i];
            each.block = &block;
            each.index = i;
            each.fiber.start(&here.stacks[(std::size_t(k) * launch.threads + i) * kStack], kStack, body);
        }
    }
    if (launch.cooperative) {
        run_together(0, launch.blocks);
    } else {  // blocks or clusters are independent: one may end before another starts
        std::vector<int> firsts;
        for (int k = 0; k < launch.blocks; k += launch.cluster) firsts.push_back(k);
        shuffle_order(firsts);
        for (int first : firsts) run_together(first, first + launch.cluster);
    }
    if (launch.work != nullptr)
        for (const Block& block : here.blocks)
            for (int first = 0; first < launch.threads; first += kLanes)
                for (std::size_t kind = 0; kind < launch.work->size(); ++kind) {
                    std::uint64_t most = 0;
                    for (int lane = 0; lane < kLanes; ++lane)
                        most = std::max(most, block.threads[first + lane].work[kind]);
                    (*launch.work)[kind] += most;
                }
    for (const Block& block : here.blocks) {
        const char* past = block.shared.get() + launch.shared_bytes;
        if (std::any_of(past, past + kGuard, [](char byte) { return byte != kUnwritten; }))
            throw Fault("block " + std::to_string(block.index) + " wrote past its shared memory");
    }
    return here.passed;
}

int thread() { return machine->running->index; }
int threads() { return machine->launch.threads; }
int block() { return machine->running->block->index; }
int blocks() { return machine->launch.blocks; }
int cluster_rank() { return block() % machine->launch.cluster; }
char* shared_memory() { return machine->running->block->shared.get(); }

void* in_block_of_cluster(void* mine, int rank) {
    Block& other = machine->blocks[block() - cluster_rank() + rank];
    if (rank >= machine->launch.cluster || !other.started || other.ended > 0) {
        machine->fault = name_of(*machine->running) + " touches the shared memory of block " +
                         std::to_string(other.index) + ", which " + (other.started ? "has ended" : "has not begun");
        machine->running->fiber.give_way();
    }
    return other.shared.get() + (static_cast<char*>(mine) - shared_memory());
}

void barrier(Scope scope, int name) {
    const Place place{scope, name};
    if (machine->launch.without != nullptr && *machine->launch.without == place) return;
    Thread* self = machine->running;
    did(Work(int(Work::block_barrier) + int(scope)));
    self->place = place;
    self->state = State::waiting;
    self->fiber.give_way();
}

void touch(const void* from, std::size_t bytes) {
    const auto* start = static_cast<const char*>(from);
    const Memory*& last = machine->last;  // the next access is usually in the same memory
    const auto holds = [&](const Memory& each) { return start >= each.from && start + bytes <= each.to; };
    if (last == nullptr || !holds(*last)) {
        const auto& memory = machine->launch.memory;
        const auto found = std::find_if(memory.begin(), memory.end(), holds);
        if (found == memory.end()) {
            machine->fault = name_of(*machine->running) + " accesses global memory that is not the kernel's";
            machine->running->fiber.give_way();
        }
        last = &*found;
    }
    if (last->touched != nullptr) last->touched[block()] += bytes;
}

void did(Work what) { ++machine->running->work[std::size_t(what)]; }

std::uint64_t shuffle_xor(std::uint64_t value, int lanes) {
    Thread* self = machine->running;
    did(Work::shuffle);
    self->given = value;
    self->lanes = lanes;
    self->state = State::shuffling;
    self->fiber.give_way();
    return self->taken;
}

}  // namespace vcdeploy::emulator
