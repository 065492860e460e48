// Working memory of a pass, reused uncleared by the next one. The system clears every page of fresh memory, which takes
// as long as some parts of a pass.
//
// The memory kept between passes never exceeds the most that was in use at one time.
#pragma once

#include <cstddef>
#include <utility>

namespace vcdeploy::training {

void* take_scratch(std::size_t bytes, std::size_t& capacity);
void give_scratch(void* memory, std::size_t capacity);

// A temporary array of T, uninitialized.
template <class T>
class Scratch {
  public:
    Scratch() = default;
    explicit Scratch(std::size_t count) : data_(static_cast<T*>(take_scratch(count * sizeof(T), capacity_))) {}
    ~Scratch() { give_scratch(data_, capacity_); }
    Scratch(Scratch&& other) noexcept { *this = std::move(other); }
    Scratch& operator=(Scratch&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }

  private:
    std::size_t capacity_ = 0;  // bytes; declared before data_, whose initializer sets it
    T* data_ = nullptr;
};

}  // namespace vcdeploy::training
