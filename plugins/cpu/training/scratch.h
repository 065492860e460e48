// Memory that a pass works in. What one pass gives back the next one takes, as it is: for memory that is new to the
// process the system clears every page first, which takes as long as some of the parts of a pass.
//
// Kept between passes is at most what was in use at some time before.
#pragma once

#include <cstddef>
#include <utility>

namespace vcdeploy::training {

void* take_scratch(std::size_t bytes, std::size_t& capacity);
void give_scratch(void* memory, std::size_t capacity);

// An array of T for as long as a pass needs it; what it holds at first is anything.
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
    std::size_t capacity_ = 0;  // bytes; before data_, which is made with it
    T* data_ = nullptr;
};

}  // namespace vcdeploy::training
