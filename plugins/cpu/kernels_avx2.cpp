// The kernels for AVX2, FMA and F16C.
#define VCDEPLOY_ISA avx2
#include "simd_256.h"
//
#include "preparation.h"
#include "product.h"
#include "reading.h"
#include "squashing.h"
#include "scheduling.h"
#include "vcgru.h"
#include "vclstm.h"
#include "vcrnn.h"

namespace vcdeploy {

const Kernels kAvx2 = {
    "avx2",
    avx2::dot,
    avx2::largest,
    avx2::quantise,
    avx2::share,
    avx2::soften,
    {{avx2::vcrnn, nullptr}, {avx2::vcgru_gates, avx2::vcgru_update}, {avx2::vclstm, nullptr}},
    avx2::output,
    avx2::sum,
};

}  // namespace vcdeploy
