// The kernels for AVX-512 VL and VNNI, FMA and F16C, in registers of 256 bits.
#define VCDEPLOY_ISA avx512
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

const Kernels kAvx512 = {
    "avx512",
    avx512::dot,
    avx512::largest,
    avx512::quantise,
    avx512::share,
    avx512::soften,
    {{avx512::vcrnn, nullptr}, {avx512::vcgru_gates, avx512::vcgru_update}, {avx512::vclstm, nullptr}},
    avx512::output,
    avx512::sum,
};

}  // namespace vcdeploy
