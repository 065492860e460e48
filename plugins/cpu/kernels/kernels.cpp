// The inference kernels of one instruction set. CMake compiles this file once per instruction set: VCDEPLOY_ISA is its
// name and the namespace of everything included here, VCDEPLOY_VECTOR_BYTES the size of its registers.
#include "simd/simd.h"
//
#include "simd/dot.h"
//
#include "kernels/activate.h"
//
#include "kernels/product.h"
//
#include "kernels/activations.h"
//
#include "kernels/bandwidth.h"
#include "kernels/bias.h"
//
#include "kernels/gru.h"
#include "kernels/kept_dot.h"
#include "kernels/scheduler_int8.h"
#include "kernels/softmax.h"
#include "kernels/vcgru.h"
#include "kernels/vclstm.h"
#include "kernels/vcrnn.h"

namespace vcdeploy::VCDEPLOY_ISA {

extern const Kernels kKernels;  // a const object needs this to be visible in other files
const Kernels kKernels = {
    VCDEPLOY_ISA_NAME,
    dot_from_the_end,
    largest,
    quantize,
    mask_state,
    mask_input,
    update_fraction,
    soften,
    {{vcrnn, nullptr},
     {vcgru_gates, vcgru_update},
     {vclstm, nullptr},
     {vcrnn, nullptr},  // the dense units
     {vcgru_gates, vcgru_update},
     {gru, nullptr},
     {vclstm, nullptr}},
    output,
    highest,
    exponentials,
    sum,
};

}  // namespace vcdeploy::VCDEPLOY_ISA
