// The training kernels of one instruction set. CMake compiles this file once per instruction set, like
// kernels/kernels.cpp.
#include "simd/simd.h"
//
#include "simd/lanes.h"
//
#include "training/tile.h"
//
#include "training/equations.h"

namespace vcdeploy::training::VCDEPLOY_ISA {

extern const Tables kTables;  // a const object needs this to be visible in other files
const Tables kTables = {VCDEPLOY_ISA_NAME, kTable<float>, kTable<double>};

}  // namespace vcdeploy::training::VCDEPLOY_ISA
