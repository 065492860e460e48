// Reads a row of a stored matrix as floats or as int8 levels.
#include "weights/matrix_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weights/precision.h"
#include "weights/quantization.h"

namespace vcdeploy {

void MatrixView::read(std::size_t r, float* out) const {
    const unsigned char* row = data + r * columns * bytes_of(precision);
    switch (precision) {
        case Precision::f32: std::memcpy(out, row, columns * sizeof(float)); break;
        case Precision::f16:
            for (int j = 0; j < columns; ++j) {
                Half half;
                std::memcpy(&half, row + j * sizeof half, sizeof half);
                out[j] = to_float(half);
            }
            break;
        case Precision::bf16:
            for (int j = 0; j < columns; ++j) {
                Bfloat16 upper;
                std::memcpy(&upper, row + j * sizeof upper, sizeof upper);
                out[j] = to_float(upper);
            }
            break;
        case Precision::int8:
        case Precision::w8a8:
            for (int j = 0; j < columns; ++j) out[j] = static_cast<float>(static_cast<signed char>(row[j])) * scales[r];
            break;
    }
}

float MatrixView::read_levels(std::size_t r, float* out) const {
    read(r, out);
    float largest = 0;
    for (int j = 0; j < columns; ++j) largest = std::max(largest, std::fabs(out[j]));
    const float scale = row_scale(largest);
    for (int j = 0; j < columns; ++j) out[j] = std::nearbyint(out[j] / scale);
    return scale;
}

}  // namespace vcdeploy
