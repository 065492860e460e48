// What survives fork(): the child has only the thread that called it, and the memory as it was at that moment.
//
// A lock that another thread held stays locked in the child, and helper threads are gone. So forking waits until no
// ForkMutex is held, and whatever depends on other threads compares forks() with the value it has seen, and starts again
// if they differ. On systems without fork() the two are an ordinary mutex and a constant.
#pragma once

#include <cstdint>
#include <mutex>

namespace vcdeploy {

// How many forks lie between the first process and this one.
std::uint32_t forks();

// A mutex that fork() takes and releases, so that it is free in the child and what it guards is whole. Hold it briefly,
// and never create, destroy or lock another one meanwhile.
class ForkMutex {
  public:
    ForkMutex();
    ~ForkMutex();
    ForkMutex(const ForkMutex&) = delete;
    ForkMutex& operator=(const ForkMutex&) = delete;

    void lock() { mutex_.lock(); }
    void unlock() { mutex_.unlock(); }

  private:
    std::mutex mutex_;
};

}  // namespace vcdeploy
