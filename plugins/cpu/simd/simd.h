// Includes the vector types of the instruction set being compiled (VCDEPLOY_ISA, VCDEPLOY_VECTOR_BYTES).
//
// Included first by kernels/kernels.cpp and training/kernels.cpp. Everything they include is `static`: if two
// instruction sets shared one copy of a function, the linker might keep one that the processor cannot run.
#pragma once

#if !defined(VCDEPLOY_ISA) || !defined(VCDEPLOY_VECTOR_BYTES)
#error "compile this file once per instruction set: see plugins/cpu/CMakeLists.txt"
#endif

#define VCDEPLOY_QUOTED(name) #name
#define VCDEPLOY_EXPANDED(name) VCDEPLOY_QUOTED(name)
#define VCDEPLOY_ISA_NAME VCDEPLOY_EXPANDED(VCDEPLOY_ISA)

#if VCDEPLOY_VECTOR_BYTES == 16
#include "simd/portable.h"
#else
#include "simd/avx.h"
#endif
//
#include "simd/counts.h"
