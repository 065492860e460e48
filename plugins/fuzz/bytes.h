// Turns the bytes of a fuzzer into sizes, settings and numbers, including all the awkward ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace vcdeploy::fuzz {

class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

    // A number from `least` to `most`, at most 256 apart; `least` when the bytes are used up.
    int number(int least, int most) { return least + next() % (most - least + 1); }
    bool flag() { return next() % 2 != 0; }
    template <class T, std::size_t Count>
    T one_of(const T (&choices)[Count]) {
        return choices[next() % Count];
    }

    template <class T>
    T raw() {
        T value{};
        for (std::size_t i = 0; i < sizeof value; ++i) reinterpret_cast<std::uint8_t*>(&value)[i] = next();
        return value;
    }

    // Numbers around `scale`; a few of them are replaced by extreme ones, or by any bits, if `wild`.
    template <class T = float>
    std::vector<T> numbers(std::size_t count, T scale, bool wild) {
        std::minstd_rand random(raw<std::uint32_t>());
        std::normal_distribution<T> normal(0, scale);
        std::vector<T> values(count);
        for (T& each : values) each = normal(random);
        using Limits = std::numeric_limits<T>;
        const T extremes[] = {Limits::quiet_NaN(),
                              Limits::infinity(),
                              -Limits::infinity(),
                              Limits::max(),
                              Limits::lowest(),
                              Limits::min(),
                              Limits::denorm_min(),
                              T(0),
                              T(-0.0),
                              T(1),
                              T(-1),
                              T(32768),
                              T(1e10)};
        for (int spots = wild && count ? number(0, 4) : 0; spots > 0; --spots)
            values[raw<std::uint32_t>() % count] = flag() ? one_of(extremes) : raw<T>();
        return values;
    }

  private:
    std::uint8_t next() {
        if (left_ == 0) return 0;
        --left_;
        return *data_++;
    }

    const std::uint8_t* data_;
    std::size_t left_;
};

// Ends the process, as a sanitizer does, if a promise is broken.
inline void require(bool kept, const char* promise) {
    if (kept) return;
    std::fprintf(stderr, "ERROR: broken promise: %s\n", promise);
    std::abort();
}

// Whether two arrays have the same bits; any NaN equals any other.
template <class T>
bool same(const std::vector<T>& one, const std::vector<T>& other) {
    for (std::size_t i = 0; i < one.size(); ++i)
        if (std::memcmp(&one[i], &other[i], sizeof(T)) != 0 && (one[i] == one[i] || other[i] == other[i])) return false;
    return one.size() == other.size();
}

}  // namespace vcdeploy::fuzz
