// A fiber: a function with its own stack that runs until it yields and can be resumed later.
//
// On x86-64 a switch takes a few instructions. Elsewhere it uses POSIX swapcontext, which makes system calls.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace vcdeploy::emulator {

class Fiber {
  public:
    // stack: owned by the caller. body must never return: it yields for good at its end.
    void start(char* stack, std::size_t bytes, void (*body)());

    void go_on();     // from the scheduler: runs the fiber until it yields
    void give_way();  // from the fiber: returns to the caller of go_on

  private:
#if defined(__x86_64__)
    void* own_ = nullptr;
    void* scheduler_ = nullptr;
#else
    ucontext_t own_, scheduler_;
#endif
};

}  // namespace vcdeploy::emulator
