// A list of released blocks, shared by all callers.
#include "training/scratch.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "system/buffer.h"
#include "system/fork.h"

namespace vcdeploy::training {
namespace {

constexpr std::size_t kWhole = std::size_t{2} << 20;  // a huge page

struct Block {
    void* memory;
    std::size_t capacity;
};

void release(Block block) { ::operator delete(block.memory, std::align_val_t{kWhole}); }

class Store {
  public:
    Block take(std::size_t bytes) {
        const std::size_t wanted = std::max<std::size_t>(1, (bytes + kWhole - 1) / kWhole) * kWhole;
        const std::lock_guard<ForkMutex> guard(lock_);
        const auto smaller = [](const Block& one, const Block& other) { return one.capacity < other.capacity; };
        std::sort(kept_.begin(), kept_.end(), smaller);
        const auto fit = std::lower_bound(kept_.begin(), kept_.end(), Block{nullptr, wanted}, smaller);
        if (fit != kept_.end() && fit->capacity <= 2 * wanted) {
            const Block found = *fit;
            kept_.erase(fit);
            in_use_ += found.capacity;
            return found;
        }
        most_ = std::max(most_, in_use_ + wanted);
        for (std::size_t held = in_use_ + wanted + kept(); held > most_ && !kept_.empty(); kept_.pop_back()) {
            held -= kept_.back().capacity;
            release(kept_.back());
        }
        const Block fresh{::operator new(wanted, std::align_val_t{kWhole}), wanted};
        prefer_huge_pages(fresh.memory, wanted);
        in_use_ += wanted;
        return fresh;
    }

    void give(Block block) {
        const std::lock_guard<ForkMutex> guard(lock_);
        in_use_ -= block.capacity;
        kept_.push_back(block);
    }

  private:
    std::size_t kept() const {
        std::size_t sum = 0;
        for (const Block& each : kept_) sum += each.capacity;
        return sum;
    }

    ForkMutex lock_;
    std::vector<Block> kept_;
    std::size_t in_use_ = 0, most_ = 0;
};

// Never destroyed: a pass may still run in another thread while the process ends.
Store& store() {
    static Store* const only = new Store;
    return *only;
}

}  // namespace

void* take_scratch(std::size_t bytes, std::size_t& capacity) {
    const Block block = store().take(bytes);
    capacity = block.capacity;
    return block.memory;
}

void give_scratch(void* memory, std::size_t capacity) {
    if (memory) store().give({memory, capacity});
}

}  // namespace vcdeploy::training
