// A thread pool that splits the rows of a step. Helper threads spin briefly between steps, then sleep.
//
// Every helper has its own part, so that its rows stay in its cache. The caller also does the parts that no helper has
// begun by the time it has finished its own: on a busy machine a helper may not run for milliseconds. If no helper comes in
// time for many brief rounds in a row, the caller works alone for a while: waking them costs more than they do.
//
// Helpers live as long as their team. A forked process has none and starts its own with the first work it splits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/table.h"

namespace vcdeploy {

class Team {
  public:
    // threads: 1 to 256, including the caller; otherwise throws std::invalid_argument. flush: helpers treat denormals
    // as 0. Throws std::system_error if the system has no more threads; so does run in a forked process.
    explicit Team(int threads, bool flush = true);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Calls work(part) for every part, at least one of them on the calling thread; returns when all are done. One
    // caller at a time. bytes: of the weights it reads; if there are few, the caller does everything.
    template <class Work>
    void run(std::int64_t bytes, const Work& work) {
        if (size_ == 1 || bytes < kWorthSharing) return work(Part{0, 1});
        const bool brief = bytes < kWorthWaking;
        if (brief && alone_ > 0) {
            --alone_;
            return work(Part{0, 1});
        }
        const bool helped = start([](const void* what, Part part) { (*static_cast<const Work*>(what))(part); }, &work);
        late_ = helped || !brief ? 0 : late_ + 1;
        if (late_ < kPatience) return;
        late_ = 0;
        alone_ = kAlone;
    }

  private:
    // About 3 µs of reading: below that, splitting costs more than it saves. And so much that waking helpers costs little.
    static constexpr std::int64_t kWorthSharing = 320'000, kWorthWaking = 20 * kWorthSharing;
    // Rounds in a row without help after which the caller works alone, long enough for helpers to wake up; and for how
    // many rounds.
    static constexpr int kPatience = 256, kAlone = 16384;

    using Call = void (*)(const void*, Part);

    // The helpers and everything they share with the caller.
    struct Crew {
        Crew(int size, bool flush);
        ~Crew();
        bool start(Call call, const void* work);
        void help(int member, bool flush);
        bool claim(int member, std::uint32_t round);
        void end();

        struct alignas(64) Claim {
            std::atomic<std::uint32_t> round{0};  // the last round in which the part was begun
        };

        std::vector<Claim> claims;  // by part; the first, the caller's own, is not used
        Call call = nullptr;
        const void* work = nullptr;
        std::atomic<bool> ended{false};
        alignas(64) std::atomic<std::uint32_t> round{0};  // incremented when there is work
        alignas(64) std::atomic<std::uint32_t> left{0};   // parts of this round, except the first, not yet done
        std::vector<std::thread> helpers;
    };

    bool start(Call call, const void* work);  // whether a helper did its part
    void leave_if_forked();

    int size_;
    bool flush_;
    int late_ = 0, alone_ = 0;  // rounds in a row without help, and rounds left to work alone
    std::uint32_t forks_;       // when the crew was started
    std::unique_ptr<Crew> crew_;
};

}  // namespace vcdeploy
