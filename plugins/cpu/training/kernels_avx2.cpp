// The training kernels for AVX2 and FMA.
#define VCDEPLOY_ISA avx2
#define VCDEPLOY_VECTOR_BYTES 32
#include "training/lanes.h"
//
#include "training/tile.h"
//
#include "training/equations.h"

namespace vcdeploy::training {

const Tables kAvx2 = {"avx2", avx2::kTable<float>, avx2::kTable<double>};

}  // namespace vcdeploy::training
