// The kernels for any processor.
#include "simd_portable.h"
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

const Kernels kPortable = {
    "portable",
    portable::dot,
    portable::largest,
    portable::quantise,
    portable::share,
    portable::soften,
    {{portable::vcrnn, nullptr}, {portable::vcgru_gates, portable::vcgru_update}, {portable::vclstm, nullptr}},
    portable::output,
    portable::sum,
};

}  // namespace vcdeploy
