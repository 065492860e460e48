// A thread pool that splits the rows of a step. Helper threads spin briefly between steps, then sleep.
//
// Helpers live as long as their team. A forked process has no helpers: create models after a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

class Team {
  public:
    // threads: 1 to 256, including the caller; otherwise throws std::invalid_argument. flush: helpers treat denormals
    // as 0.
    explicit Team(int threads, bool flush = true);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return static_cast<int>(helpers_.size()) + 1; }

    // Calls work(part) for every part, one of them on the calling thread; returns when all are done. One caller at a
    // time. products: multiply-adds in total; if there are few, the caller does everything.
    template <class Work>
    void run(std::int64_t products, const Work& work) {
        if (helpers_.empty() || products < kWorthSharing) return work(Part{0, 1});
        start([](const void* what, Part part) { (*static_cast<const Work*>(what))(part); }, &work);
    }

  private:
    // About 5 µs of work: below that, splitting costs more than it saves.
    static constexpr std::int64_t kWorthSharing = 80'000;

    using Call = void (*)(const void*, Part);

    void start(Call call, const void* work);
    void help(int member);
    void end();

    bool flush_;
    std::vector<std::thread> helpers_;
    Call call_ = nullptr;  // null ends the helpers
    const void* work_ = nullptr;
    std::atomic<std::uint32_t> round_{0};  // incremented when there is work
    std::atomic<std::uint32_t> busy_{0};   // helpers that have not finished this round
};

}  // namespace vcdeploy
