// Packs weights: converts each to its precision and writes it to its place.
#include "weights/packing.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "weights/layout.h"

namespace vcdeploy {
namespace {

void check(float value, Precision precision) {
    if (!std::isfinite(value)) throw std::invalid_argument("a weight is " + std::to_string(value) + ", not a number");
    if (precision == Precision::f16 && std::fabs(value) >= kHalfLimit)
        throw std::invalid_argument("a weight of " + std::to_string(value) +
                                    " is beyond f16 (largest value 65504); use f32 or bf16");
}

void put(unsigned char* weights, std::size_t place, float value, Precision precision) {
    switch (precision) {
        case Precision::f32: reinterpret_cast<float*>(weights)[place] = value; break;
        case Precision::f16: reinterpret_cast<Half*>(weights)[place] = to_half(value); break;
        case Precision::bf16: reinterpret_cast<Bfloat16*>(weights)[place] = to_bfloat16(value); break;
        case Precision::int8:
        case Precision::w8a8: weights[place] = static_cast<unsigned char>(static_cast<int>(value)); break;
    }
}

// The place of a weight within its panel.
std::size_t place_of(int column, int gate, int row, int gates, Precision precision) {
    if (precision == Precision::w8a8)
        return (static_cast<std::size_t>(column / 4) * gates + gate) * kPanel * 4 + row * 4 + column % 4;
    if (precision == Precision::int8) {
        const std::size_t pair = column / 2;
        return (pair * gates + gate) * kPanel * 2 + row % 8 * 4 + column % 2 * 2 + row / 8;
    }
    if (precision == Precision::bf16) row = row % 8 * 2 + row / 8;
    return (static_cast<std::size_t>(column) * gates + gate) * kPanel + row;
}

// Reads row r in the form to pack; returns its scale if quantized, else 1.
float read_row(const MatrixView& rows, std::size_t r, int row_of_panel, Precision precision, Buffer<float>& row) {
    if (!is_quantized(precision)) {
        rows.read(r, row.data());
        for (std::size_t j = 0; j < row.size(); ++j) check(row[j], precision);
        return 1;
    }
    const float scale = rows.read_levels(r, row.data());
    check(scale, precision);
    for (std::size_t j = 0; j < row.size(); ++j) {
        check(row[j], precision);
        if (precision == Precision::w8a8 || row_of_panel < 8) row[j] += 128;  // layout.h
    }
    return scale;
}

}  // namespace

HookMatrix::HookMatrix(const MatrixView& stack, int first, int last, int dim, Precision precision)
    : precision_(precision) {
    const int count = last - first;
    const std::size_t padded = rounded_up(dim, kShell);
    const bool quantized = is_quantized(precision);
    weights_ = Buffer<unsigned char>(padded * padded * count * bytes_of(precision));
    if (quantized) scales_ = Buffer<float>(padded * count);
    Buffer<float> row(dim);

    for (int gate = 0; gate < count; ++gate) {
        for (int r = 0; r < dim; ++r) {
            const int panel = r / kPanel, own_shell = r / kShell;
            const float scale =
                read_row(stack, static_cast<std::size_t>(first + gate) * dim + r, r % kPanel, precision, row);
            if (quantized) scales_[(static_cast<std::size_t>(panel) * count + gate) * kPanel + r % kPanel] = scale;
            for (int j = 0; j < dim; ++j) {
                const int k = std::max(own_shell, j / kShell);
                const int column = k == own_shell ? j : j % kShell;
                const std::size_t place =
                    panel_start(k, panel, count) + place_of(column, gate, r % kPanel, count, precision);
                put(weights_.data(), place, row[j], precision);
            }
        }
    }
}

PanelMatrix::PanelMatrix(const MatrixView& rows, int count, int dim, Precision precision) : precision_(precision) {
    const bool quantized = is_quantized(precision);
    const std::size_t padded = static_cast<std::size_t>(panels_of(count)) * kPanel;
    const std::size_t columns = quantized ? rounded_up(dim, kColumnGroup) : dim;
    weights_ = Buffer<unsigned char>(padded * columns * bytes_of(precision));
    if (quantized) scales_ = Buffer<float>(padded);
    Buffer<float> row(dim);
    for (int r = 0; r < count; ++r) {
        const float scale = read_row(rows, r, r % kPanel, precision, row);
        if (quantized) scales_[r] = scale;
        const std::size_t panel = r / kPanel * columns * kPanel;
        for (int j = 0; j < dim; ++j)
            put(weights_.data(), panel + place_of(j, 0, r % kPanel, 1, precision), row[j], precision);
    }
}

}  // namespace vcdeploy
