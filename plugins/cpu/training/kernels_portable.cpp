// The training kernels for any processor.
#define VCDEPLOY_ISA portable
#define VCDEPLOY_VECTOR_BYTES 16
#include "training/lanes.h"
//
#include "training/tile.h"
//
#include "training/equations.h"

namespace vcdeploy::training {

const Tables kPortable = {"portable", portable::kTable<float>, portable::kTable<double>};

}  // namespace vcdeploy::training
