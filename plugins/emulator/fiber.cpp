// Stack switching for fibers.
#include "fiber.h"

#include <cstdint>

#if defined(__x86_64__)

// Saves the callee-saved registers on the current stack, stores its pointer in *save, switches to the stack `to` and
// restores its registers.
extern "C" void vcdeploy_switch(void** save, void* to);
asm(R"(
.text
.globl vcdeploy_switch
.hidden vcdeploy_switch
.type vcdeploy_switch, @function
vcdeploy_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size vcdeploy_switch, .-vcdeploy_switch
)");

namespace vcdeploy::emulator {

void Fiber::start(char* stack, std::size_t bytes, void (*body)()) {
    // The stack looks as if body had been called: its return address (none) at 16n + 8, below it the target of `ret`
    // and six registers.
    auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t(15);
    auto* place = reinterpret_cast<void**>(top);
    *--place = nullptr;
    *--place = reinterpret_cast<void*>(body);
    for (int i = 0; i < 6; ++i) *--place = nullptr;
    own_ = place;
}

void Fiber::go_on() { vcdeploy_switch(&scheduler_, own_); }
void Fiber::give_way() { vcdeploy_switch(&own_, scheduler_); }

}  // namespace vcdeploy::emulator

#else

namespace vcdeploy::emulator {

void Fiber::start(char* stack, std::size_t bytes, void (*body)()) {
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack;
    own_.uc_stack.ss_size = bytes;
    own_.uc_link = nullptr;
    makecontext(&own_, body, 0);
}

void Fiber::go_on() { swapcontext(&scheduler_, &own_); }
void Fiber::give_way() { swapcontext(&own_, &scheduler_); }

}  // namespace vcdeploy::emulator

#endif
