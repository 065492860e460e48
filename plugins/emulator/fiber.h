// A fiber: a function with a stack of its own, that runs until it gives way, and later goes on from there.
//
// On x86-64 a switch is eight instructions. Elsewhere it is POSIX's swapcontext, which does the same with system calls.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace vcdeploy::emulator {

class Fiber {
  public:
    // stack: owned by the caller. body never returns: its last act is to give way for good.
    void start(char* stack, std::size_t bytes, void (*body)());

    void go_on();     // from the scheduler: runs the fiber until it gives way
    void give_way();  // from the fiber: back to where go_on was called

  private:
#if defined(__x86_64__)
    void* own_ = nullptr;
    void* scheduler_ = nullptr;
#else
    ucontext_t own_, scheduler_;
#endif
};

}  // namespace vcdeploy::emulator
