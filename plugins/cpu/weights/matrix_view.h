// A matrix as stored in a file, read row by row, so that packing needs no float copy of the whole matrix.
#pragma once

#include <cstddef>

#include "common/spec.h"

namespace vcdeploy {

// Row-major. Owned by the caller; needed only while it is packed. Need not be aligned.
struct MatrixView {
    const unsigned char* data;  // [rows, columns], stored in `precision`
    Precision precision;
    const float* scales;  // if quantized: [rows], the value of one level
    int columns;

    // Row r as floats: out [columns].
    void read(std::size_t r, float* out) const;

    // Row r quantized to levels from -127 to 127, the same as stored in int8 files; returns the scale (quantization.h).
    float read_levels(std::size_t r, float* out) const;
};

}  // namespace vcdeploy
