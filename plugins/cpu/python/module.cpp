// The Python module vcdeploy._native: checks arrays, gets their pointers, releases the GIL and calls the library.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "engine/model.h"
#include "engine/sequence.h"
#include "engine/session.h"
#include "kernels/dispatch.h"
#include "python/arrays.h"
#include "python/calls.h"
#include "python/session.h"
#include "python/training.h"
#include "system/bandwidth.h"
#include "system/cpu_features.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace vcdeploy;

namespace {

constexpr std::size_t kMostDimensions = 1 << 16;
void check_dimensions(std::size_t dim) {
    if (dim > kMostDimensions)
        throw nb::value_error(("a state of " + std::to_string(dim) +
                               " dimensions is too large: the kernels take up to " + std::to_string(kMostDimensions))
                                  .c_str());
}

// A matrix: float32 [rows, columns], or as stored in a file: bytes [rows, columns * bytes per weight], the precision
// and, if quantized, scales [rows].
using StoredArray = std::tuple<Array, std::string, MaybeArray>;
using MatrixArray = std::variant<Array, StoredArray>;

MatrixView matrix_of(const MatrixArray& given, const std::string& name, std::size_t rows, std::size_t columns) {
    const int count = static_cast<int>(columns);
    if (const Array* plain = std::get_if<Array>(&given)) {
        const float* data = elements<float>(*plain, name, {rows, columns});
        return {reinterpret_cast<const unsigned char*>(data), Precision::f32, nullptr, count};
    }
    const auto& [bytes, precision_name, scales] = std::get<StoredArray>(given);
    const Precision precision = precision_of(precision_name);
    if (scales.has_value() != is_quantized(precision))
        throw nb::value_error((name + " must have scales if it is int8 or w8a8, and none otherwise").c_str());
    return {elements<unsigned char>(bytes, name, {rows, columns * bytes_of(precision)}), precision,
            scales ? elements<float>(*scales, name + ".scale", {rows}) : nullptr, count};
}

// The shape [vocab, D] of a matrix, both above 0.
Shape matrix_shape(const MatrixArray& given, const std::string& name) {
    const char* wanted = "[vocab, D], both above 0";
    if (const Array* plain = std::get_if<Array>(&given)) return sizes(*plain, name, wanted, 2, false);
    const auto& [bytes, precision_name, scales] = std::get<StoredArray>(given);
    Shape shape = sizes(bytes, name, wanted, 2, false);
    shape[1] /= bytes_of(precision_of(precision_name));
    if (shape[1] == 0) throw nb::value_error((name + " must have the shape " + wanted).c_str());
    return shape;
}

// vectors: u, v and b of a variable unit; of a dense one, its bias or nothing.
LayerWeights layer_of(const MatrixArray& U, const MatrixArray& V, const std::vector<const Array*>& vectors,
                      const std::string& prefix, Unit unit, std::size_t dim) {
    const UnitSpec& spec = spec_of(unit);
    const std::size_t rows = dim * spec.gates;
    LayerWeights weights{matrix_of(U, prefix + "U", rows, dim), matrix_of(V, prefix + "V", rows, dim)};
    if (spec.variable) {
        if (vectors.size() != 3) throw nb::value_error((prefix + " must hold U, V, u, v and b").c_str());
        weights.u = elements<float>(*vectors[0], prefix + "u", {dim});
        weights.v = elements<float>(*vectors[1], prefix + "v", {dim});
        weights.b = *elements<float>(*vectors[2], prefix + "b", {1});
    } else {
        if (vectors.size() > 1) throw nb::value_error((prefix + " must hold U, V and at most a bias").c_str());
        if (!vectors.empty()) weights.bias = elements<float>(*vectors[0], prefix + "bias", {dim * spec.planes()});
    }
    return weights;
}

// plugins/common/spec.h as {"units": {name: {...}}, "precisions": {name: {...}}}.
nb::dict spec() {
    nb::dict units, precisions, both;
    for (const UnitSpec& each : kUnits) {
        nb::list gates;
        for (int i = 0; i < each.gates; ++i) gates.append(each.gate_names[i]);
        nb::dict row;
        row["op"] = each.op;
        row["variable"] = each.variable;
        row["gates"] = nb::tuple(gates);
        row["state_rows"] = each.state_rows;
        units[each.name] = row;
    }
    for (const PrecisionSpec& each : kPrecisions) {
        nb::dict row;
        row["bytes"] = each.bytes;
        row["levels"] = each.levels;
        precisions[each.name] = row;
    }
    both["units"] = units;
    both["precisions"] = precisions;
    return both;
}

nb::tuple run_op(const std::string& unit_name, const Array& X, const Array& H0, const Array& U, const Array& V,
                 const MaybeArray& u, const MaybeArray& v, const MaybeArray& b, const MaybeArray& C0, double sharpness,
                 double epsilon, const MaybeArray& m, const MaybeArray& bias, const std::string& precision_name,
                 int threads, const std::string& isa) {
    const Unit unit = unit_of(unit_name);
    const Precision precision = precision_of(precision_name);
    const Shape shape = sizes(X, "X", "[T, B, D] with T and D above 0", 3, true);
    const std::size_t T = shape[0], B = shape[1], D = shape[2];
    if (T == 0 || D == 0) sizes(X, "X", "[T, B, D] with T and D above 0", 3, false);
    check_dimensions(D);
    const bool has_cell = spec_of(unit).has_cell();
    if (has_cell != C0.has_value())
        throw nb::value_error((unit_name + (has_cell ? " needs C0, its cell" : " has no cell: leave out C0")).c_str());

    const Made<float> Y = made<float>({T, B, D}), H = made<float>({B, D}), M = made<float>({T, B});
    const Made<float> C = made<float>(has_cell ? Shape{B, D} : Shape{0, D});
    std::vector<const Array*> vectors;
    for (const MaybeArray* each : {&u, &v, &b, &bias})
        if (*each) vectors.push_back(&**each);
    const LayerWeights weights = layer_of(U, V, vectors, "", unit, D);
    SequenceCall call{};
    call.T = static_cast<int>(T);
    call.B = static_cast<int>(B);
    call.X = elements<float>(X, "X", {T, B, D});
    call.H0 = elements<float>(H0, "H0", {B, D});
    call.C0 = has_cell ? elements<float>(*C0, "C0", {B, D}) : nullptr;
    call.m = m ? elements<float>(*m, "m", {T, B}) : nullptr;
    call.Y = Y.data();
    call.H = H.data();
    call.M = M.data();
    call.C = C.data();
    {
        const nb::gil_scoped_release free;
        const Layer layer(unit, static_cast<int>(D), weights, precision);
        Stepper stepper(unit, static_cast<int>(D), precision, Softness(sharpness, epsilon), choose_kernels(isa),
                        threads);
        run_sequences(layer, stepper, call);
    }
    return has_cell ? nb::make_tuple(Y, H, M, C) : nb::make_tuple(Y, H, M);
}

using LayerArrays = std::vector<std::vector<MatrixArray>>;

void make_model(Model* place, const std::string& unit_name, const MatrixArray& embedding, const LayerArrays& layers,
                const MatrixArray& output, const Array& bias, double sharpness, double epsilon,
                const std::string& precision, int threads, std::int64_t table_bytes, const std::string& isa) {
    const Shape shape = matrix_shape(embedding, "embedding");
    const std::size_t vocab = shape[0], D = shape[1];
    check_dimensions(D);
    if (layers.empty()) throw nb::value_error("a model needs at least one layer");
    if (table_bytes < 0) throw nb::value_error("table_bytes must be 0 or more");

    ModelWeights weights{};
    weights.unit = unit_of(unit_name);
    weights.dim = static_cast<int>(D);
    weights.vocab = static_cast<int>(vocab);
    weights.embedding = matrix_of(embedding, "embedding", vocab, D);
    weights.output = matrix_of(output, "output weight", vocab, D);
    weights.bias = elements<float>(bias, "output bias", {vocab});
    for (const std::vector<MatrixArray>& each : layers) {
        const std::string prefix = "layers." + std::to_string(weights.layers.size()) + ".";
        if (each.size() < 2) throw nb::value_error((prefix + " must hold U and V").c_str());
        std::vector<const Array*> vectors;
        for (std::size_t i = 2; i < each.size(); ++i) {
            vectors.push_back(std::get_if<Array>(&each[i]));
            if (!vectors.back()) throw nb::type_error((prefix + " must hold arrays after U and V").c_str());
        }
        weights.layers.push_back(layer_of(each[0], each[1], vectors, prefix, weights.unit, D));
    }
    const ModelOptions options{Softness(sharpness, epsilon), precision_of(precision), threads,
                               static_cast<std::size_t>(table_bytes), &choose_kernels(isa)};
    const nb::gil_scoped_release free;
    new (place) Model(weights, options);
}

Logits logits_of(const std::string& name) {
    if (name == "all") return Logits::all;
    if (name == "last") return Logits::last;
    if (name == "none") return Logits::none;
    throw nb::value_error(("logits must be all, last or none, not '" + name + "'").c_str());
}

nb::tuple run_model(Model& model, const Array& tokens, const MaybeArray& state, nb::handle check,
                    const std::string& logits_name) {
    const Network& network = *model.network();
    const Logits wanted = logits_of(logits_name);
    const Shape shape = sizes(tokens, "tokens", "[T, B]", 2, true);
    const std::size_t T = shape[0], B = shape[1];
    const Shape state_shape{static_cast<std::size_t>(network.state_rows()), B, static_cast<std::size_t>(network.dim())};
    const std::vector<std::int64_t> ids = checked_tokens(tokens, "tokens", shape, network.vocab());
    const std::vector<float> before = state_of(state, state_shape);
    const std::size_t rows = wanted == Logits::all ? T : wanted == Logits::last && T > 0 ? 1 : 0;
    const Made<float> logits = made<float>({rows, B, static_cast<std::size_t>(network.vocab())});
    const Made<float> after = made<float>(state_shape);
    const Made<float> compute = made<float>({T, B, static_cast<std::size_t>(network.layers())});
    {
        Interruptions pause(check);
        const nb::gil_scoped_release free;
        model.run(ids.data(), static_cast<int>(T), static_cast<int>(B), before.data(), wanted, logits.data(),
                  after.data(), compute.data(), std::ref(pause));
    }
    return nb::make_tuple(logits, after, compute);
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Native code of vcdeploy: the CPU kernels that skip.";

    m.def(
        "cpu_features",
        [] {
            nb::dict features;
            for (const auto& [name, member] : kCpuFeatureNames) features[name] = cpu_features().*member;
            return features;
        },
        "The instruction sets the kernels can use, and whether this processor has each.");

    m.def("spec", spec, "The units and precisions of the native code: {'units': {name: …}, 'precisions': {name: …}}.");

    m.def(
        "instruction_sets",
        [] {
            std::vector<std::string> names;
            for (const Kernels* each : usable_kernels()) names.push_back(each->name);
            return names;
        },
        "The values of `isa` this processor supports, best first.");

    m.def(
        "read_bandwidth",
        [](std::int64_t bytes, double seconds, int threads, const std::string& isa) {
            if (bytes < 0) throw nb::value_error("bytes must be above 0");
            const nb::gil_scoped_release free;
            return read_bandwidth(static_cast<std::size_t>(bytes), seconds, threads, choose_kernels(isa));
        },
        "bytes"_a, "seconds"_a, nb::kw_only(), "threads"_a = 1, "isa"_a = "auto",
        "Read bandwidth in bytes/s over a buffer of this size: the best pass in about this many seconds.");

    m.def("op", run_op, "unit"_a, "X"_a, "H0"_a, "U"_a, "V"_a, "u"_a = nb::none(), "v"_a = nb::none(),
          "b"_a = nb::none(), "C0"_a = nb::none(), nb::kw_only(), "sharpness"_a = 1.0, "epsilon"_a = 1e-3,
          "m"_a = nb::none(), "bias"_a = nb::none(), "precision"_a = "f32", "threads"_a = 1, "isa"_a = "auto",
          "The op of docs/design.md, section 2: Y, H, M and, for vclstm and lstm, C.");

    nb::class_<Model>(m, "Model", "A language model with packed weights.")
        .def("__init__", make_model, "unit"_a, "embedding"_a, "layers"_a, "output_weight"_a, "output_bias"_a,
             nb::kw_only(), "sharpness"_a, "epsilon"_a, "precision"_a = "f32", "threads"_a = 1, "table_bytes"_a = 0,
             "isa"_a = "auto")
        .def("run", run_model, "tokens"_a, "state"_a = nb::none(), "check"_a = nb::none(), "logits"_a = "all",
             "tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers]. "
             "check: called every few milliseconds; an exception ends the call. logits: all, last or none.")
        .def(
            "session",
            [](const Model& model, int batch) {
                if (batch < 1) throw nb::value_error("a session has at least one sequence");
                const nb::gil_scoped_release free;
                return std::make_unique<Session>(model.network(), batch);
            },
            "batch"_a = 1, "A session of so many sequences, from zero states.")
        .def_prop_ro(
            "isa", [](const Model& model) { return model.network()->kernels().name; }, "The instruction set in use.")
        .def_prop_ro("dim", [](const Model& model) { return model.network()->dim(); })
        .def_prop_ro("vocab_size", [](const Model& model) { return model.network()->vocab(); })
        .def_prop_ro("state_rows", [](const Model& model) { return model.network()->state_rows(); })
        .def_prop_ro(
            "weight_bytes", [](const Model& model) { return model.network()->weight_bytes(); },
            "Size of the packed weights.")
        .def_prop_ro(
            "table_bytes", [](const Model& model) { return model.network()->table_bytes(); },
            "Size of the first layer's table; 0 without one.");

    bind_session(m);
    bind_training(m);
}
