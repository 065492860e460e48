// The instruction sets of this processor that the kernels may use, detected once at run time.
//
// An instruction set counts only if the operating system also saves its registers; otherwise its instructions would be
// illegal.
#pragma once

#include <array>

namespace vcdeploy {

struct CpuFeatures {
    bool avx2 = false;
    bool fma = false;
    bool f16c = false;      // conversion between f16 and f32, eight at a time
    bool avx_vnni = false;  // int8 dot products in 256-bit registers, without AVX-512
    bool avx512f = false;
    bool avx512bw = false;
    bool avx512vl = false;
    bool avx512_vnni = false;  // int8 dot products
    bool avx512_bf16 = false;  // bfloat16 dot products
    bool neon = false;
    bool halves_avx512 = false;  // executes instructions of 512 bits in two halves: AMD's Zen 4
};

// The features of the processor this runs on.
const CpuFeatures& cpu_features();

struct CpuFeatureName {
    const char* name;
    bool CpuFeatures::* member;
};

// The features by name, spelled as in /proc/cpuinfo.
inline constexpr std::array<CpuFeatureName, 10> kCpuFeatureNames{{
    {"avx2", &CpuFeatures::avx2},
    {"fma", &CpuFeatures::fma},
    {"f16c", &CpuFeatures::f16c},
    {"avx_vnni", &CpuFeatures::avx_vnni},
    {"avx512f", &CpuFeatures::avx512f},
    {"avx512bw", &CpuFeatures::avx512bw},
    {"avx512vl", &CpuFeatures::avx512vl},
    {"avx512_vnni", &CpuFeatures::avx512_vnni},
    {"avx512_bf16", &CpuFeatures::avx512_bf16},
    {"neon", &CpuFeatures::neon},
}};

}  // namespace vcdeploy
