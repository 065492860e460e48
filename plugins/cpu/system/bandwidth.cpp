// Times repeated passes over one buffer.
#include "system/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "system/buffer.h"
#include "system/threads.h"

namespace vcdeploy {

double read_bandwidth(std::size_t bytes, double seconds, int threads, const Kernels& kernels) {
    if (bytes == 0 || !(seconds > 0)) throw std::invalid_argument("bytes and seconds must be above 0");
    using Clock = std::chrono::steady_clock;
    constexpr std::size_t kLeast = std::size_t{4} << 20;  // bytes per pass, to outweigh clock and thread overhead
    constexpr std::int64_t kShared = std::int64_t{1} << 40;
    Team team(threads);
    const std::size_t members = team.size(), together = kReadTogether * members;
    const std::size_t count = (bytes / sizeof(float) + together) / together * together;
    const Buffer<float> values(count);
    const std::size_t times = std::max<std::size_t>(1, kLeast / values.bytes());
    std::vector<float> sums(members * 16);  // one cache line per thread
    const auto pass = [&] {
        team.run(kShared, [&](Part part) {
            const std::size_t own = count / members;
            for (std::size_t k = 0; k < times; ++k)
                sums[part.member * 16] += kernels.sum(values.data() + own * part.member, own);
        });
    };
    pass();
    double best = 0;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    do {
        const auto begin = Clock::now();
        pass();
        const std::chrono::duration<double> took = Clock::now() - begin;
        best = std::max(best, static_cast<double>(values.bytes() * times) / took.count());
    } while (Clock::now() < end);
    if (sums[0] != 0) throw std::logic_error("zeros do not sum to zero");  // keeps the compiler from removing the sums
    return best;
}

}  // namespace vcdeploy
