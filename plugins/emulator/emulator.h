// Runs CUDA kernels on a CPU, in a single operating-system thread, to test their barriers.
//
// Every CUDA thread is a fiber with its own stack. It runs until it reaches a barrier or a shuffle; then the scheduler
// chooses the next one. Barriers and shuffles are real: no thread passes before all have arrived. The schedule is
// adversarial and deterministic for a seed. Odd seeds let one warp of one block run as far ahead as barriers allow,
// then the next, in an order redrawn at every barrier between blocks; even seeds draw a warp at every turn.
//
// Detects: missing barriers (a thread reads data not yet written or already overwritten), barriers not reached by all
// threads, shuffles not reached by all lanes, access to another block's shared memory before that block starts or after
// it ends, reads of unwritten memory (it is initialized to NaN), and accesses past the end of a tensor, the workspace
// or the shared memory. Does not detect: effects of a GPU's weak memory ordering, bank conflicts, occupancy, speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace vcdeploy::emulator {

enum class Scope { block, cluster, grid };

// A barrier in the source: its scope and its name (Barrier of device.cuh).
using Place = std::pair<Scope, int>;

// A range of global memory the kernel may access. touched: output, bytes each block accessed, or null.
struct Memory {
    const char *from, *to;
    std::size_t* touched = nullptr;  // [blocks]
};

// What is counted. Not counted: addresses, comparisons, conversions, and the plain arithmetic around exp and tanh.
enum class Work {
    global_load,  // from global memory, of any width
    global_store,
    load,  // from the block's own memory, of any width
    store,
    multiply_add,
    sum,       // additions and products, each rounded
    function,  // exp, tanh
    shuffle,
    block_barrier,  // in the order of Scope
    cluster_barrier,
    grid_barrier,
    count
};

// Instructions of warps: of each kind the most that any lane executed, summed over the warps of all blocks. These are
// the instructions issued if lanes of a warp only differ in that some are idle.
using Counts = std::array<std::uint64_t, std::size_t(Work::count)>;

struct Launch {
    int blocks;
    int threads;  // per block, a multiple of 32
    std::size_t shared_bytes;
    int cluster = 1;           // blocks per cluster
    bool cooperative = false;  // all blocks run at once, and the grid has barriers
    std::uint64_t seed = 0;
    const Place* without = nullptr;  // a barrier to leave out, or null
    std::vector<Memory> memory{};
    Counts* work = nullptr;  // output, added to; or null
};

// The kernel did something that would hang or be undefined on a GPU.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs `kernel` once per thread and returns the barriers it passed. Throws Fault.
std::set<Place> run(const Launch& launch, const std::function<void()>& kernel);

// Functions for kernels, valid within `run`.
int thread();
int threads();
int block();
int blocks();
int cluster_rank();
char* shared_memory();
void* in_block_of_cluster(void* mine, int rank);
void barrier(Scope scope, int name);
void touch(const void* from, std::size_t bytes);  // records an access to global memory
void did(Work what);                              // counts an instruction of the current thread
std::uint64_t shuffle_xor(std::uint64_t value, int lanes);

}  // namespace vcdeploy::emulator
