// What calls of the engine have in common: copies of arguments, new arrays, and interruptions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "python/arrays.h"

namespace vcdeploy {

using MaybeArray = std::optional<Array>;
template <class T>
using Made = nb::ndarray<nb::numpy, T>;

inline constexpr std::size_t kMostElements = 0x7fffffff;

// The shape of an array with this many dimensions, each at least 1 unless `empty` allows 0.
inline Shape sizes(const Array& array, const std::string& name, const char* names, std::size_t dimensions, bool empty) {
    const Shape shape = shape_of(array);
    bool fits = shape.size() == dimensions;
    for (std::size_t size : shape) fits = fits && (size > 0 || empty) && size <= kMostElements;
    if (!fits) throw nb::value_error((name + " must have the shape " + names + ", not " + to_string(shape)).c_str());
    return shape;
}

template <class T>
Made<T> made(const Shape& shape) {
    std::size_t count = 1;
    for (std::size_t size : shape) {
        if (size > 0 && count > ~std::size_t{0} / sizeof(T) / size) throw std::bad_alloc();
        count *= size;
    }
    std::unique_ptr<T[]> memory(new T[count]);
    nb::capsule owner(memory.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Made<T>(memory.release(), shape.size(), shape.data(), owner);
}

// A copy of the elements: what is checked must be what is used, and once the GIL is released another thread may write
// into the caller's array.
template <class T>
std::vector<T> copied(const Array& array, const std::string& name, const Shape& shape) {
    const T* first = elements<T>(array, name, shape);
    return {first, first + array.size()};
}

inline void check_token(std::int64_t id, const std::string& name, int vocab) {
    if (id < 0 || id >= vocab)
        throw nb::value_error(
            (name + " holds " + std::to_string(id) + ", but the ids here are 0 to " + std::to_string(vocab - 1))
                .c_str());
}

inline std::vector<std::int64_t> checked_tokens(const Array& tokens, const std::string& name, const Shape& shape,
                                                int vocab) {
    const std::vector<std::int64_t> ids = copied<std::int64_t>(tokens, name, shape);
    for (const std::int64_t id : ids) check_token(id, name, vocab);
    return ids;
}

// A copy of the given state, or zeros.
inline std::vector<float> state_of(const MaybeArray& state, const Shape& shape) {
    if (state) return copied<float>(*state, "state", shape);
    return std::vector<float>(shape[0] * shape[1] * shape[2]);
}

// Called by the library without the GIL. Every few milliseconds: runs Python's signal handlers (Ctrl-C) and `check`,
// which may be None; an exception of either ends the call.
class Interruptions {
  public:
    explicit Interruptions(nb::handle check) : check_(check) {}

    void operator()() {
        if (Clock::now() < next_) return;
        {
            const nb::gil_scoped_acquire held;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (!check_.is_none()) check_();
        }
        next_ = Clock::now() + kApart;
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kApart{10};

    nb::handle check_;
    Clock::time_point next_ = Clock::now() + kApart;
};

}  // namespace vcdeploy
