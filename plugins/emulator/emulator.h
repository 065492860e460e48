// Runs CUDA kernels on a CPU, one operating-system thread in all, to find out whether their barriers are right.
//
// Every CUDA thread is a fiber with a stack of its own. It runs until it comes to a barrier or a shuffle; then the
// scheduler decides who goes on. Barriers and shuffles are real: nobody passes before all have come. The schedule is
// adversarial and repeats for the same seed. Odd seeds let one warp of one block run as far ahead as barriers allow,
// then the next, in an order drawn anew at every barrier between blocks; even seeds draw a warp at every turn.
//
// What it finds: a barrier that is missing (someone reads what is not yet written, or no longer there), one that not
// all threads come to, a shuffle not all lanes take part in, another block's shared memory before that block runs or
// after it ended, memory that was never written (all of it is NaN at first), memory past the end of a tensor, of the
// workspace or of the shared memory.
// What it can't see: the weak order of memory of a GPU, bank conflicts, occupancy, speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace vcdeploy::emulator {

enum class Scope { block, cluster, grid };

// A barrier in the source: who waits, and its name (Barrier of device.cuh).
using Place = std::pair<Scope, int>;

// Of global memory, what a kernel may touch. touched: gets how many bytes of it each block touched, or null.
struct Memory {
    const char *from, *to;
    std::size_t* touched = nullptr;  // [blocks]
};

struct Launch {
    int blocks;
    int threads;  // of a block, a multiple of 32
    std::size_t shared_bytes;
    int cluster = 1;           // blocks of a cluster
    bool cooperative = false;  // all blocks are there at once, and the grid has barriers
    std::uint64_t seed = 0;
    const Place* without = nullptr;  // a barrier to leave out, or null
    std::vector<Memory> memory{};
};

// A kernel did what on a GPU would hang or be undefined.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs `kernel` once in every thread, and returns the barriers it passed. Throws Fault.
std::set<Place> run(const Launch& launch, const std::function<void()>& kernel);

// What a kernel asks for, from within `run`.
int thread();
int threads();
int block();
int blocks();
int cluster_rank();
char* shared_memory();
void* in_block_of_cluster(void* mine, int rank);
void barrier(Scope scope, int name);
void touch(const void* from, std::size_t bytes);  // global memory
std::uint64_t shuffle_xor(std::uint64_t value, int lanes);

}  // namespace vcdeploy::emulator
