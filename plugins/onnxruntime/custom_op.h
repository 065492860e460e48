// The ops VCRNN, VCGRU and VCLSTM as ONNX Runtime wants them described (docs/design.md, section 2).
#pragma once

#include <onnxruntime_c_api.h>

#include "unit_kernel.h"

namespace vcdeploy {

// A record of C functions, and what they need to know. It must outlive every session that uses it.
struct CustomOp : OrtCustomOp {
    CustomOp(Unit unit, Settings settings);

    Unit unit;
    Settings settings;
};

}  // namespace vcdeploy
