// Memory for the kernels: aligned to cache lines, zeroed by default, on huge pages if large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace vcdeploy {

// Requests huge pages for the whole ones within the range, before the first write: page faults on small pages cost more
// than the writes themselves. Only a hint; if refused, only speed is lost.
inline void prefer_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef __linux__
    constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
    const std::uintptr_t last = (begin + bytes) / kHugePage * kHugePage;
    if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

enum class Contents { zero, any };

// An array of T that owns its memory. Files compiled per instruction set must not use it: they take pointers.
template <class T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(std::size_t count, Contents contents = Contents::zero) : count_(count) {
        if (count > (~std::size_t{0} - kHugePage) / sizeof(T)) throw std::bad_alloc();
        // Reading a multi-megabyte matrix front to back would miss the TLB on every small page.
        const std::size_t wanted = count * sizeof(T);
        alignment_ = wanted >= kHugePage ? kHugePage : kCacheLine;
        const std::size_t bytes = (wanted + alignment_ - 1) / alignment_ * alignment_;
        if (bytes == 0) return;
        data_ = static_cast<T*>(::operator new(bytes, std::align_val_t{alignment_}));
        prefer_huge_pages(data_, bytes);
        if (contents == Contents::zero) std::memset(static_cast<void*>(data_), 0, bytes);
    }
    ~Buffer() { ::operator delete(data_, std::align_val_t{alignment_}); }
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* data() { return data_; }
    const T* data() const { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    std::size_t size() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(T); }

  private:
    static constexpr std::size_t kCacheLine = 64;
    static constexpr std::size_t kHugePage = std::size_t{2} << 20;

    void swap(Buffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        std::swap(alignment_, other.alignment_);
    }

    T* data_ = nullptr;
    std::size_t count_ = 0;
    std::size_t alignment_ = kCacheLine;
};

}  // namespace vcdeploy
