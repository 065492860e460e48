// Descriptions of the ops VCRNN, VCGRU and VCLSTM for ONNX Runtime (docs/design.md, section 2).
#pragma once

#include "ort_c_api.h"
#include "unit_kernel.h"

namespace vcdeploy {

// C functions and the data they use. It must outlive every session that uses it.
struct CustomOp : OrtCustomOp {
    CustomOp(Unit unit, Settings settings);

    Unit unit;
    Settings settings;
};

}  // namespace vcdeploy
