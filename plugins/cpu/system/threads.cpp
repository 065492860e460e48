// Synchronization between the caller and its helper threads: a counter starts a round, each part is claimed once, and
// another counter ends the round.
#include "system/threads.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "system/denormals.h"
#include "system/fork.h"

namespace vcdeploy {
namespace {

using Clock = std::chrono::steady_clock;

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#endif
}

// Waits for a counter to change: spins, then sleeps. Waking a sleeping thread costs tens of microseconds, about as long
// as a step, so spinning pays if the change comes within that time; otherwise it only takes the processor from others.
// The last wait predicts the next: after a short one, a waiter spins long; after every long one, half as long.
class Waiter {
  public:
    // Returns the value, which is no longer `old`.
    std::uint32_t wait(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
        const Clock::time_point begin = Clock::now();
        do {
            for (int look = 0; look < kLooks; ++look) {
                if (const std::uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
                relax();
            }
        } while (Clock::now() - begin < spin_);
        value.wait(old, std::memory_order_acquire);
        spin_ = Clock::now() - begin < kLongest ? kLongest : std::max(kShortest, spin_ / 2);
        return value.load(std::memory_order_acquire);
    }

  private:
    static constexpr int kLooks = 16;  // between looks at the clock
    static constexpr std::chrono::nanoseconds kShortest{2'000}, kLongest{50'000};

    std::chrono::nanoseconds spin_ = kLongest;
};

}  // namespace

Team::Team(int threads, bool flush) : size_(threads), flush_(flush), forks_(forks()) {
    if (threads < 1 || threads > 256)
        throw std::invalid_argument("threads must be between 1 and 256, not " + std::to_string(threads));
    if (threads > 1) crew_ = std::make_unique<Crew>(size_, flush_);
}

Team::~Team() { leave_if_forked(); }

// In a forked process: gives up the crew, whose threads exist only in the parent. Its memory is not released, because
// ending a thread object that is neither joined nor detached ends the process.
void Team::leave_if_forked() {
    if (forks_ == forks()) return;
    static_cast<void>(crew_.release());
    forks_ = forks();
}

bool Team::start(Call call, const void* work) {
    leave_if_forked();
    if (!crew_) crew_ = std::make_unique<Crew>(size_, flush_);
    return crew_->start(call, work);
}

Team::Crew::Crew(int size, bool flush) : claims(size) {
    helpers.reserve(size - 1);
    try {
        for (int member = 1; member < size; ++member)
            helpers.emplace_back([this, member, flush] { help(member, flush); });
    } catch (...) {  // the system has no more threads: end those already started
        end();
        throw;
    }
}

Team::Crew::~Crew() { end(); }

void Team::Crew::end() {
    ended = true;
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
    for (std::thread& helper : helpers) helper.join();
}

// Whether this thread is the first to begin the part in this round. From then on the round can't end before the part is
// done, so that call and work stay as they are. A helper that woke too late, in a later round, always fails.
bool Team::Crew::claim(int member, std::uint32_t round_) {
    std::uint32_t before = round_ - 1;
    return claims[member].round.compare_exchange_strong(before, round_, std::memory_order_acq_rel);
}

bool Team::Crew::start(Call call_, const void* work_) {
    const int size = static_cast<int>(claims.size());
    call = call_;
    work = work_;
    left.store(static_cast<std::uint32_t>(size - 1), std::memory_order_relaxed);
    const std::uint32_t now = round.fetch_add(1, std::memory_order_release) + 1;
    round.notify_all();
    call(work, Part{0, size});
    std::uint32_t done = 0;
    for (int member = 1; member < size; ++member)
        if (claim(member, now)) {
            call(work, Part{member, size});
            ++done;
        }
    std::uint32_t rest = left.fetch_sub(done, std::memory_order_acq_rel) - done;
    for (Waiter waiter; rest != 0;) rest = waiter.wait(left, rest);
    return done + 1 < claims.size();
}

void Team::Crew::help(int member, bool flush) {
    const FlushDenormals flushing(flush);
    const int size = static_cast<int>(claims.size());
    Waiter waiter;
    // Start from 0, not the counter's current value: the first round may have begun before this thread.
    for (std::uint32_t seen = 0;;) {
        seen = waiter.wait(round, seen);
        if (ended) return;
        if (!claim(member, seen)) continue;
        call(work, Part{member, size});
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) left.notify_all();
    }
}

}  // namespace vcdeploy
