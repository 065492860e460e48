// The list of all ForkMutexes, and the handlers around fork().
#include "system/fork.h"

#include <algorithm>
#include <atomic>
#include <vector>

#ifndef _WIN32
#include <pthread.h>
#endif

namespace vcdeploy {
namespace {

struct Registry {
    std::mutex lock;
    std::vector<ForkMutex*> all;
    std::atomic<std::uint32_t> forks{0};
};

// Never destroyed: mutexes of static objects outlive it otherwise.
Registry& registry() {
    static Registry* const only = [] {
        auto* made = new Registry;
#ifndef _WIN32
        const auto before = [] {
            registry().lock.lock();
            for (ForkMutex* each : registry().all) each->lock();
        };
        const auto after = [] {
            for (ForkMutex* each : registry().all) each->unlock();
            registry().lock.unlock();
        };
        const auto in_child = [] {
            registry().forks.fetch_add(1, std::memory_order_relaxed);
            for (ForkMutex* each : registry().all) each->unlock();
            registry().lock.unlock();
        };
        pthread_atfork(before, after, in_child);
#endif
        return made;
    }();
    return *only;
}

}  // namespace

std::uint32_t forks() { return registry().forks.load(std::memory_order_relaxed); }

ForkMutex::ForkMutex() {
    const std::lock_guard<std::mutex> guard(registry().lock);
    registry().all.push_back(this);
}

ForkMutex::~ForkMutex() {
    const std::lock_guard<std::mutex> guard(registry().lock);
    std::vector<ForkMutex*>& all = registry().all;
    all.erase(std::find(all.begin(), all.end(), this));
}

}  // namespace vcdeploy
