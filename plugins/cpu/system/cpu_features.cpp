// Detects CPU features: cpuid and xgetbv on x86. 64-bit Arm always has NEON.
#include "system/cpu_features.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cstdint>
#ifdef _MSC_VER
#include <immintrin.h>
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace vcdeploy {
namespace {

#if defined(__x86_64__) || defined(_M_X64)

struct Registers {
    std::uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
    Registers out{};
#ifdef _MSC_VER
    int r[4];
    __cpuidex(r, static_cast<int>(leaf), static_cast<int>(subleaf));
    out = {static_cast<std::uint32_t>(r[0]), static_cast<std::uint32_t>(r[1]), static_cast<std::uint32_t>(r[2]),
           static_cast<std::uint32_t>(r[3])};
#else
    __cpuid_count(leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx);
#endif
    return out;
}

// XCR0: one bit per kind of register that the operating system saves on a task switch.
std::uint64_t saved_registers() {
#ifdef _MSC_VER
    return _xgetbv(0);
#else
    // Inline assembly, since the _xgetbv intrinsic needs a compiler flag for it.
    std::uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<std::uint64_t>(high) << 32) | low;
#endif
}

bool bit(std::uint32_t word, int n) { return (word >> n) & 1u; }

CpuFeatures ask() {
    CpuFeatures f;
    const Registers maker = cpuid(0, 0);
    const std::uint32_t leaves = maker.eax;
    const Registers basic = cpuid(1, 0);
    const int family = static_cast<int>((basic.eax >> 8 & 15) + (basic.eax >> 20 & 255));
    f.halves_avx512 = maker.ebx == 0x68747541 && family <= 25;  // "Auth", of AuthenticAMD
    const bool osxsave = bit(basic.ecx, 27);
    if (!osxsave) return f;  // without it xgetbv itself is illegal

    const std::uint64_t saved = saved_registers();
    const bool ymm = (saved & 0x06) == 0x06;  // the SSE and AVX state
    const bool zmm = (saved & 0xe6) == 0xe6;  // and opmask, upper halves of zmm0-15, zmm16-31
    f.fma = ymm && bit(basic.ecx, 12);
    f.f16c = ymm && bit(basic.ecx, 29);
    if (leaves < 7) return f;

    const Registers extended = cpuid(7, 0);
    f.avx2 = ymm && bit(extended.ebx, 5);
    f.avx512f = zmm && bit(extended.ebx, 16);
    f.avx512bw = zmm && bit(extended.ebx, 30);
    f.avx512vl = zmm && bit(extended.ebx, 31);
    f.avx512_vnni = zmm && bit(extended.ecx, 11);
    const bool has_subleaf_1 = extended.eax >= 1;
    if (has_subleaf_1) {
        const Registers more = cpuid(7, 1);
        f.avx_vnni = ymm && bit(more.eax, 4);
        f.avx512_bf16 = zmm && bit(more.eax, 5);
    }
    return f;
}

#elif defined(__aarch64__) || defined(_M_ARM64)

CpuFeatures ask() {
    CpuFeatures f;
    f.neon = true;
    return f;
}

#else

CpuFeatures ask() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
    static const CpuFeatures features = ask();
    return features;
}

}  // namespace vcdeploy
