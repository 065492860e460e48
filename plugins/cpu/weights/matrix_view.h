// A matrix as a file stores it, read row by row: packing needs no float copy of the whole matrix.
#pragma once

#include <cstddef>

#include "common/spec.h"

namespace vcdeploy {

// Row-major, owned by the caller and needed only while it is packed. It may lie at any address, aligned or not.
struct MatrixView {
    const unsigned char* data;  // [rows, columns] of the precision
    Precision precision;
    const float* scales;  // int8 only: [rows], the value of one unit in that row
    int columns;

    // Row r as floats: out [columns].
    void read(std::size_t r, float* out) const;

    // Row r in whole numbers from -127 to 127, and what one of them is worth (quantization.h): those that int8 files store.
    float read_levels(std::size_t r, float* out) const;
};

}  // namespace vcdeploy
