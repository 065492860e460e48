// Builds the table once, at load, and finds the nearest row at every step.
#include "weights/input_table.h"

#include <algorithm>
#include <cmath>

#include "weights/layout.h"
#include "weights/quantization.h"

namespace vcdeploy {

std::vector<InputTable::Level> InputTable::levels_of(const UnitSpec& spec, int dim, int spacing) {
    const int gates = spec.gates;
    if (!spec.variable) return {{dim, rounded_up(dim, kPanel), 0}};
    std::vector<Level> levels;
    std::size_t start = 0;
    for (int columns = 0;; columns = std::min(columns + spacing, dim)) {
        const int furthest = std::min(columns + spacing - 1, dim);  // the largest a that takes this c
        const int rows = rounded_up(furthest, kPanel);
        levels.push_back({columns, rows, start});
        start += static_cast<std::size_t>(rows) * gates;
        if (columns == dim) return levels;
    }
}

std::size_t InputTable::size_of(const std::vector<Level>& levels, int gates) {
    return levels.back().start + static_cast<std::size_t>(levels.back().rows) * gates;
}

int InputTable::spacing_within(std::size_t budget, Unit unit, int dim, int vocab) {
    const UnitSpec& spec = spec_of(unit);
    for (const std::size_t limit : {std::min(budget, kFine), budget}) {
        for (int spacing = 16;; spacing *= 2) {
            const std::size_t token = size_of(levels_of(spec, dim, spacing), spec.gates) * sizeof(float);
            if (token <= limit / vocab) return spacing;
            if (spacing >= dim) break;
        }
    }
    return 0;
}

InputTable::InputTable(const MatrixView& V, const float* embedding, const Layer& layer, int vocab, int spacing,
                       const Kernels& kernels)
    : spacing_(spacing), levels_(levels_of(spec_of(layer.unit), layer.dim, spacing)) {
    const int gates = gates_of(layer.unit), dim = layer.dim;
    const bool quantized = is_quantized(layer.precision);
    size_ = size_of(levels_, gates);
    if (quantized)
        counts_ = Buffer<std::int32_t>(size_ * vocab);
    else
        sums_ = Buffer<float>(size_ * vocab);
    const auto dot = [&](const float* a, const float* b, int n) { return kernels.dot(a, b, n, n, nullptr); };
    of_scheduler_.reserve(vocab);
    largest_.reserve(vocab);
    Buffer<float> inputs(static_cast<std::size_t>(vocab) * dim);  // or their levels
    for (int token = 0; token < vocab; ++token) {
        const float* x = embedding + static_cast<std::size_t>(token) * dim;
        float* input = inputs.data() + static_cast<std::size_t>(token) * dim;
        of_scheduler_.push_back(layer.scheduler ? dot(layer.scheduler->v(), x, dim) : 0);
        largest_.push_back(kernels.largest(x, dim));
        std::copy_n(x, dim, input);
        if (!quantized) continue;
        Activations levels{};
        set_range(levels, input_range(largest_.back()), activation_levels(layer.precision, dim));
        for (int i = 0; i < dim; ++i) input[i] = std::nearbyint(x[i] * levels.levels_of_one);
    }
    Buffer<float> row(dim);
    for (int gate = 0; gate < gates; ++gate) {
        for (int r = 0; r < dim; ++r) {
            const std::size_t from = static_cast<std::size_t>(gate) * dim + r;
            if (quantized)
                V.read_levels(from, row.data());
            else
                V.read(from, row.data());
            const std::size_t place = (static_cast<std::size_t>(r / kPanel) * gates + gate) * kPanel + r % kPanel;
            for (int token = 0; token < vocab; ++token) {
                const float* x = inputs.data() + static_cast<std::size_t>(token) * dim;
                double sum = 0;
                int done = 0;
                for (const Level& level : levels_) {
                    sum += dot(row.data() + done, x + done, level.columns - done);
                    done = level.columns;
                    if (r >= level.rows) continue;
                    const std::size_t at = size_ * token + level.start + place;
                    if (quantized)
                        counts_[at] = static_cast<std::int32_t>(sum);
                    else
                        sums_[at] = static_cast<float>(sum);
                }
            }
        }
    }
}

InputTable::Row InputTable::nearest(std::int64_t token, const Extent& extent) const {
    std::size_t k = std::min(static_cast<std::size_t>(extent.active / spacing_), levels_.size() - 1);
    if (k + 1 < levels_.size() && levels_[k + 1].columns - extent.active < extent.ones - levels_[k].columns) ++k;
    const std::size_t start = size_ * token + levels_[k].start;
    if (counts_.size()) return {nullptr, counts_.data() + start, levels_[k].columns};
    return {sums_.data() + start, nullptr, levels_[k].columns};
}

}  // namespace vcdeploy
