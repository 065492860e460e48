// Distributes numbered pieces of work over a team of threads. Which thread computes a piece changes no bit of it.
#pragma once

#include <atomic>
#include <cstdint>

#include "system/threads.h"

namespace vcdeploy::training {

// An element of a row that goes through a unit's equations or the scheduler's, in multiply-adds of a product.
constexpr std::int64_t kElement = 32;

// work(number, member) for every number below count. products: what it comes to in multiply-adds.
template <class Work>
void distribute(Team& team, int count, std::int64_t products, const Work& work) {
    std::atomic<int> next{0};
    team.run(products, [&](Part part) {
        for (int number; (number = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(number, part.member);
    });
}

}  // namespace vcdeploy::training
