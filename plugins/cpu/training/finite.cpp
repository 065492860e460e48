// A separate file, since the bindings are optimized for size and this loop must be vectorized.
#include "training/finite.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "training/work.h"

namespace vcdeploy::training {
namespace {

template <class T>
bool all_of(const T* x, std::size_t count) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits kExponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
    Bits found = 0;  // no early exit, so that the compiler can vectorize
    for (std::size_t i = 0; i < count; ++i) found |= (std::bit_cast<Bits>(x[i]) & kExponent) == kExponent;
    return found == 0;
}

}  // namespace

template <class T>
bool all_finite(const T* x, std::size_t count, Team& team) {
    constexpr std::size_t kPiece = 1 << 15;
    const int pieces = static_cast<int>((count + kPiece - 1) / kPiece);
    std::atomic<bool> finite{true};
    distribute(team, pieces, static_cast<std::int64_t>(count), [&](int piece, int) {
        const std::size_t begin = piece * kPiece;
        if (!all_of(x + begin, std::min(kPiece, count - begin))) finite.store(false, std::memory_order_relaxed);
    });
    return finite;
}

template bool all_finite(const float*, std::size_t, Team&);
template bool all_finite(const double*, std::size_t, Team&);

}  // namespace vcdeploy::training
