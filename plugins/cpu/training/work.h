// Distributes numbered work items over a team of threads. The result does not depend on which thread runs an item.
#pragma once

#include <atomic>
#include <cstdint>

#include "system/threads.h"

namespace vcdeploy::training {

// Cost of one element of the unit's or scheduler's equations, in multiply-adds.
constexpr std::int64_t kElement = 32;

// Calls work(number, member) for every number below count. products: total cost in multiply-adds.
template <class Work>
void distribute(Team& team, int count, std::int64_t products, const Work& work) {
    std::atomic<int> next{0};
    team.run(products * std::int64_t{sizeof(float)}, [&](Part part) {
        for (int number; (number = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(number, part.member);
    });
}

}  // namespace vcdeploy::training
