// The training kernels for AVX-512 F, BW and VL.
#define VCDEPLOY_ISA avx512
#define VCDEPLOY_VECTOR_BYTES 64
#include "training/lanes.h"
//
#include "training/tile.h"
//
#include "training/equations.h"

namespace vcdeploy::training {

const Tables kAvx512 = {"avx512", avx512::kTable<float>, avx512::kTable<double>};

}  // namespace vcdeploy::training
