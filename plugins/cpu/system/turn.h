// A lock for long work, first come, first served. Those who wait can give up, and a forked process gets it free.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "system/fork.h"

namespace vcdeploy {

// Called between pieces of work and while waiting, without a lock held; throws to end the call.
using Pause = std::function<void()>;

class Turn {
  public:
    void take(const Pause& pause);
    void give();

  private:
    // What must start again in a forked process: who works and who waits were other threads.
    struct Queue {
        std::condition_variable_any changed;
        std::list<int> waiting;  // in order; only the addresses of the nodes matter
        bool taken = false;
        std::uint32_t forks = vcdeploy::forks();
    };

    Queue& queue();

    ForkMutex mutex_;
    std::unique_ptr<Queue> queue_ = std::make_unique<Queue>();
};

// Holds a turn while it lives.
class Holding {
  public:
    Holding(Turn& turn, const Pause& pause) : turn_(turn) { turn_.take(pause); }
    ~Holding() { turn_.give(); }
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

  private:
    Turn& turn_;
};

}  // namespace vcdeploy
