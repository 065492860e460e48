// Kernels that are wrong on purpose, one for each fault the emulator must detect.
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator.h"

namespace {

using namespace vcdeploy::emulator;

void divergent_barrier() {  // all threads wait, but not at the same barrier
    barrier(Scope::block, thread() < 32 ? 1 : 2);
}

void missed_barrier() {
    if (thread() > 0) barrier(Scope::block, 1);
}

void partial_shuffle() {
    if (thread() % 32 < 16) shuffle_xor(thread(), 1);
}

void divergent_shuffle() { shuffle_xor(thread(), thread() % 32 < 16 ? 1 : 2); }

void past_shared_memory() { shared_memory()[64] = 1; }  // allocated: 64 bytes

void foreign_memory() {
    static const int number = 1;
    touch(&number, sizeof number);
}

void ended_block() {  // block 1 has ended or not started
    if (cluster_rank() == 0) std::memset(in_block_of_cluster(shared_memory(), 1), 0, 1);
}

void grid_barrier_without_cooperative_launch() { barrier(Scope::grid, 1); }

void nothing_wrong() {
    shuffle_xor(thread(), 1);
    barrier(Scope::block, 1);
    barrier(Scope::cluster, 2);
    std::memset(in_block_of_cluster(shared_memory(), 1 - cluster_rank()), 0, 64);
    barrier(Scope::cluster, 3);
}

struct Wrong {
    const char* name;
    void (*kernel)();
};
constexpr Wrong kWrong[] = {{"divergent barrier", divergent_barrier},
                            {"missed barrier", missed_barrier},
                            {"partial shuffle", partial_shuffle},
                            {"divergent shuffle", divergent_shuffle},
                            {"past shared memory", past_shared_memory},
                            {"foreign memory", foreign_memory},
                            {"ended block", ended_block},
                            {"grid barrier", grid_barrier_without_cooperative_launch},
                            {"nothing wrong", nothing_wrong}};

}  // namespace

// Runs the kernel with this name in a cluster of two blocks of 64 threads. Returns 0; 1 with the fault detected; or -1
// if there is no such kernel.
extern "C" int vcdeploy_fault(const char* name, unsigned long long seed, char* message, int length) {
    for (const Wrong& each : kWrong) {
        if (std::strcmp(each.name, name) != 0) continue;
        try {
            Launch launch{};
            launch.blocks = launch.cluster = 2;
            launch.threads = launch.shared_bytes = 64;
            launch.seed = seed;
            run(launch, each.kernel);
            return 0;
        } catch (const std::exception& error) {
            std::snprintf(message, length, "%s", error.what());
            return 1;
        }
    }
    return -1;
}
