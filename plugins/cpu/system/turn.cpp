// One queue of waiting callers; whoever is first in it and finds the turn free takes it.
#include "system/turn.h"

#include <chrono>
#include <mutex>

namespace vcdeploy {
namespace {

constexpr std::chrono::milliseconds kPatience{10};  // between pauses

}  // namespace

Turn::Queue& Turn::queue() {
    if (queue_->forks != forks()) {
        // Not destroyed: a condition variable waits in its destructor for threads that do not exist here.
        static_cast<void>(queue_.release());
        queue_ = std::make_unique<Queue>();
    }
    return *queue_;
}

void Turn::take(const Pause& pause) {
    std::unique_lock<ForkMutex> guard(mutex_);
    Queue& q = queue();
    if (!q.taken && q.waiting.empty()) {
        q.taken = true;
        return;
    }
    const auto mine = q.waiting.insert(q.waiting.end(), 0);
    while (q.taken || q.waiting.begin() != mine) {
        if (q.changed.wait_for(guard, kPatience) != std::cv_status::timeout) continue;
        guard.unlock();
        try {
            pause();
        } catch (...) {
            guard.lock();
            q.waiting.erase(mine);
            q.changed.notify_all();
            throw;
        }
        if (q.forks != forks()) return take(pause);  // pause() forked, and this is the child
        guard.lock();
    }
    q.waiting.erase(mine);
    q.taken = true;
}

void Turn::give() {
    const std::lock_guard<ForkMutex> guard(mutex_);
    Queue& q = queue();
    q.taken = false;
    if (!q.waiting.empty()) q.changed.notify_all();
}

}  // namespace vcdeploy
