// Treats denormals as 0 on this thread while an object lives: on x86, arithmetic with them is about a hundred times
// slower, and a decaying state is full of them. Not used for int8 and w8a8, whose results must match other runtimes bit for bit;
// quantized values are almost never denormal.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace vcdeploy {

class FlushDenormals {
  public:
#if defined(__x86_64__) || defined(_M_X64)
    explicit FlushDenormals(bool wanted = true) : before_(_mm_getcsr()) {
        if (wanted) _mm_setcsr(before_ | kFlushResults | kFlushOperands);
    }
    ~FlushDenormals() { _mm_setcsr(before_); }
#else
    explicit FlushDenormals(bool = true) {}
    ~FlushDenormals() {}
#endif
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__x86_64__) || defined(_M_X64)
  private:
    static constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
    unsigned before_;
#endif
};

}  // namespace vcdeploy
