// While it lives, and is wanted, numbers too small for a full mantissa count as 0 on this thread: arithmetic with them is a
// hundred times slower on x86, and a state that fades away is full of them. Not wanted in int8, whose results have to be
// the bits that other runtimes get; there are next to none in it, since whole levels are nothing or much larger.
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
