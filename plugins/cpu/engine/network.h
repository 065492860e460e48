// The weights of a language model: embedding, layers of one unit, output layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/output.h"
#include "kernels/scheduler.h"
#include "kernels/table.h"
#include "system/buffer.h"
#include "weights/input_table.h"
#include "weights/layer.h"
#include "weights/packing.h"

namespace vcdeploy {

// The weights of a model as stored in a file. Owned by the caller; needed only while a Network is constructed.
struct ModelWeights {
    Unit unit;
    int dim, vocab;
    MatrixView embedding;  // [vocab, dim]
    std::vector<LayerWeights> layers;
    MatrixView output;  // [vocab, dim]
    const float* bias;  // [vocab]
};

struct ModelOptions {
    Softness softness;
    Precision precision;
    int threads;
    std::size_t table_budget;  // maximum size of the first layer's table in bytes; a larger one is not built
    const Kernels* kernels;
};

// Packed weights. They never change, so any number of threads may read them.
class Network {
  public:
    // Throws std::invalid_argument if a weight is NaN, infinite or outside the precision's range.
    Network(const ModelWeights& weights, const ModelOptions& options);

    Unit unit() const { return unit_; }
    int dim() const { return dim_; }
    int vocab() const { return vocab_; }
    int layers() const { return static_cast<int>(layers_.size()); }
    int rows_of_layer() const { return spec_of(unit_).state_rows; }
    int state_rows() const { return layers() * rows_of_layer(); }  // S
    bool has_cell() const { return spec_of(unit_).has_cell(); }
    const ModelOptions& options() const { return options_; }
    const Kernels& kernels() const { return *options_.kernels; }

    const Layer& layer(int l) const { return layers_[l]; }
    const OutputLayer& output() const { return output_; }
    const InputTable* table() const { return table_.get(); }  // of the first layer, or null
    const float* embedding(std::int64_t token) const {        // [dim]
        return embedding_.data() + static_cast<std::size_t>(token) * dim_;
    }

    std::size_t weight_bytes() const;
    std::size_t table_bytes() const { return table_ ? table_->bytes() : 0; }

    // Multiply-adds of a step that updates the whole state.
    std::int64_t products() const;

  private:
    Unit unit_;
    int dim_, vocab_;
    ModelOptions options_;
    Buffer<float> embedding_;  // [vocab, dim]
    std::vector<Layer> layers_;
    OutputLayer output_;
    std::unique_ptr<InputTable> table_;
};

}  // namespace vcdeploy
