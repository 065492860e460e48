// A team of threads that share the rows of a step. Helpers spin for a moment between steps and then sleep.
//
// Every helper lives as long as its team. A process forked from this one has no helpers: make the model after a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

class Team {
  public:
    // `threads` counts the caller; flush: whether helpers take denormals for 0. Throws std::invalid_argument below 1 or
    // above 256.
    explicit Team(int threads, bool flush = true);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return static_cast<int>(helpers_.size()) + 1; }

    // work(part) for every part of the team, the caller's included; returns when all are done. One caller at a time.
    // products: the multiply-adds it comes to; where they are few the caller does it alone.
    template <class Work>
    void run(std::int64_t products, const Work& work) {
        if (helpers_.empty() || products < kWorthSharing) return work(Part{0, 1});
        start([](const void* what, Part part) { (*static_cast<const Work*>(what))(part); }, &work);
    }

  private:
    // Some 5 microseconds: below them handing rows to another thread costs more than it saves.
    static constexpr std::int64_t kWorthSharing = 80'000;

    using Call = void (*)(const void*, Part);

    void start(Call call, const void* work);
    void help(int member);
    void end();

    bool flush_;
    std::vector<std::thread> helpers_;
    Call call_ = nullptr;  // null tells the helpers to end
    const void* work_ = nullptr;
    std::atomic<std::uint32_t> round_{0};  // counts up when there is work
    std::atomic<std::uint32_t> busy_{0};   // helpers that have not finished this round
};

}  // namespace vcdeploy
