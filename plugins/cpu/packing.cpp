// Puts every weight in its place and precision.
#include "packing.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "layout.h"

namespace vcdeploy {
namespace {

void check(float value, Precision precision) {
    if (!std::isfinite(value)) throw std::invalid_argument("a weight is " + std::to_string(value) + ", not a number");
    if (precision == Precision::f16 && std::fabs(value) >= kHalfLimit)
        throw std::invalid_argument("a weight of " + std::to_string(value) +
                                    " is beyond f16, which ends at 65504; use f32 or bf16");
}

void put(unsigned char* weights, std::size_t place, float value, Precision precision) {
    switch (precision) {
        case Precision::f32: reinterpret_cast<float*>(weights)[place] = value; break;
        case Precision::f16: reinterpret_cast<Half*>(weights)[place] = to_half(value); break;
        case Precision::bf16: reinterpret_cast<Bfloat16*>(weights)[place] = to_bfloat16(value); break;
        case Precision::int8: reinterpret_cast<signed char*>(weights)[place] = static_cast<signed char>(value); break;
    }
}

// The place of a weight within its panel.
std::size_t place_of(int column, int gate, int row, int gates, Precision precision) {
    if (precision == Precision::int8) {
        const std::size_t pair = column / 2;
        return ((pair * gates + gate) * kPanel + row) * 2 + column % 2;
    }
    if (precision == Precision::bf16) row = row % 8 * 2 + row / 8;
    return (static_cast<std::size_t>(column) * gates + gate) * kPanel + row;
}

}  // namespace

HookMatrix::HookMatrix(const StoredMatrix& stack, int first, int last, int dim, Precision precision)
    : precision_(precision) {
    const int count = last - first;
    const std::size_t padded = rounded_up(dim, kShell);
    const bool quantised = precision == Precision::int8;
    weights_ = Buffer<unsigned char>(padded * padded * count * bytes_of(precision));
    if (quantised) scales_ = Buffer<float>(padded * count);
    Buffer<float> row(dim);

    for (int gate = 0; gate < count; ++gate) {
        for (int r = 0; r < dim; ++r) {
            stack.read(static_cast<std::size_t>(first + gate) * dim + r, row.data());
            float largest = 0;
            for (int j = 0; j < dim; ++j) {
                check(row[j], precision);
                largest = std::max(largest, std::fabs(row[j]));
            }
            const int panel = r / kPanel, own_shell = r / kShell;
            const std::size_t scale = (static_cast<std::size_t>(panel) * count + gate) * kPanel + r % kPanel;
            if (quantised) scales_[scale] = largest / 127;
            for (int j = 0; j < dim; ++j) {
                const int k = std::max(own_shell, j / kShell);
                const int column = k == own_shell ? j : j % kShell;
                const std::size_t place =
                    panel_start(k, panel, count) + place_of(column, gate, r % kPanel, count, precision);
                // In double, so that no row is too small for 127 / largest to be finite.
                const double level = quantised && largest > 0 ? std::nearbyint(row[j] * (127.0 / largest)) : 0;
                put(weights_.data(), place, quantised ? static_cast<float>(level) : row[j], precision);
            }
        }
    }
}

PanelMatrix::PanelMatrix(const StoredMatrix& rows, int count, int dim, Precision precision)
    : precision_(precision == Precision::int8 ? Precision::f16 : precision) {
    weights_ = Buffer<unsigned char>(static_cast<std::size_t>(panels_of(count)) * kPanel * dim * bytes_of(precision_));
    Buffer<float> row(dim);
    for (int r = 0; r < count; ++r) {
        rows.read(r, row.data());
        for (int j = 0; j < dim; ++j) {
            check(row[j], precision_);
            const std::size_t panel = static_cast<std::size_t>(r / kPanel) * dim * kPanel;
            put(weights_.data(), panel + place_of(j, 0, r % kPanel, 1, precision_), row[j], precision_);
        }
    }
}

}  // namespace vcdeploy
