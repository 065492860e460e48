// Synchronization between the caller and its helper threads: one counter starts a round, another ends it.
#include "system/threads.h"

#include <stdexcept>
#include <string>

#include "system/denormals.h"

namespace vcdeploy {
namespace {

// Polls before a helper sleeps: a step takes tens of microseconds, and waking a sleeping thread costs as much.
constexpr int kLooks = 2000;

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#endif
}

// Waits until `value` is no longer `old` and returns it.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int look = 0; look < kLooks; ++look) {
        const std::uint32_t now = value.load(std::memory_order_acquire);
        if (now != old) return now;
        relax();
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
}

}  // namespace

Team::Team(int threads, bool flush) : flush_(flush) {
    if (threads < 1 || threads > 256)
        throw std::invalid_argument("threads must be between 1 and 256, not " + std::to_string(threads));
    helpers_.reserve(threads - 1);
    try {
        for (int member = 1; member < threads; ++member) helpers_.emplace_back([this, member] { help(member); });
    } catch (...) {  // the system has no more threads: end those already started
        end();
        throw;
    }
}

Team::~Team() { end(); }

void Team::end() {
    call_ = nullptr;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void Team::start(Call call, const void* work) {
    call_ = call;
    work_ = work;
    busy_.store(static_cast<std::uint32_t>(helpers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    call(work, Part{0, size()});
    for (std::uint32_t left = busy_.load(std::memory_order_acquire); left != 0;) left = wait_for_change(busy_, left);
}

void Team::help(int member) {
    const FlushDenormals flush(flush_);
    // Start from 0, not the counter's current value: the first round may have begun before this thread.
    for (std::uint32_t seen = 0;;) {
        seen = wait_for_change(round_, seen);
        if (!call_) return;
        call_(work_, Part{member, size()});
        if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_all();
    }
}

}  // namespace vcdeploy
