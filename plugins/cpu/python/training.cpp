// Bindings of the training passes for float32 and float64 arrays. The caller provides all memory, outputs included.
#include "python/training.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "python/arrays.h"
#include "training/finite.h"
#include "training/training.h"
#include "weights/layer.h"

namespace vcdeploy {
namespace {

using namespace nb::literals;

using Writable = nb::ndarray<nb::device::cpu>;

struct Sizes {
    Unit unit;
    std::size_t T, B, D;

    // scheduled: whether the arrays of a scheduler are present.
    Sizes(const std::string& unit_name, const Array& X, bool has_cell, bool scheduled) : unit(unit_of(unit_name)) {
        if (spec_of(unit).resets_product) throw nb::value_error((unit_name + " is not trained here").c_str());
        const Shape shape = shape_of(X);
        constexpr std::size_t kMost = 0x7fffffff;
        bool fits = shape.size() == 3 && shape[2] <= 1 << 16;
        for (std::size_t size : shape) fits = fits && size > 0 && size <= kMost;
        if (!fits || shape[0] > kMost / shape[1])
            throw nb::value_error(
                ("X must have the shape [T, B, D], all above 0, D up to 65536, not " + to_string(shape)).c_str());
        T = shape[0], B = shape[1], D = shape[2];
        if (has_cell != spec_of(unit).has_cell())
            throw nb::value_error((unit_name + (has_cell ? " has no cell" : " needs its cell")).c_str());
        if (scheduled != spec_of(unit).variable)
            throw nb::value_error((unit_name + (scheduled ? " has no scheduler" : " needs its scheduler")).c_str());
    }

    Shape sequence() const { return {T, B, D}; }
    Shape tokens() const { return {T, B}; }
    Shape state() const { return {B, D}; }
    Shape matrix() const { return {gates_of(unit) * D, D}; }
    Shape gates() const {
        constexpr std::size_t W = training::kPadding;
        return {T * B * gates_of(unit) * ((D + W - 1) / W * W)};
    }
};

// The elements of an array, or null if there is none.
template <class T, class AnyArray>
auto maybe(const std::optional<AnyArray>& array, const std::string& name, const Shape& shape) {
    return array ? elements<T>(*array, name, shape) : nullptr;
}

using MaybeArray = std::optional<Array>;
using MaybeWritable = std::optional<Writable>;

template <class T>
training::TrainedLayer<T> layer_of(const Sizes& sizes, const Array& U, const Array& V, const MaybeArray& u,
                                   const MaybeArray& v, double b, double sharpness, double epsilon) {
    return {sizes.unit,
            static_cast<int>(sizes.T),
            static_cast<int>(sizes.B),
            static_cast<int>(sizes.D),
            Softness(sharpness, epsilon),
            elements<T>(U, "U", sizes.matrix()),
            elements<T>(V, "V", sizes.matrix()),
            maybe<T>(u, "u", {sizes.D}),
            maybe<T>(v, "v", {sizes.D}),
            static_cast<T>(b)};
}

// Calls run(T()) with the element type of X.
template <class Run>
void by_type(const Array& X, const Run& run) {
    if (X.dtype() == nb::dtype<float>()) return run(float());
    if (X.dtype() == nb::dtype<double>()) return run(double());
    throw nb::type_error("the arrays must be of float32 or float64");
}

void forward(const std::string& unit, const Array& X, const Array& H0, const Array& U, const Array& V,
             const MaybeArray& u, const MaybeArray& v, double b, const MaybeWritable& C, const Writable& Y,
             const MaybeWritable& M, const MaybeWritable& gates, double sharpness, double epsilon, int threads,
             const std::string& isa) {
    const Sizes sizes(unit, X, C.has_value(), u && v && M);
    by_type(X, [&](auto zero) {
        using T = decltype(zero);
        const auto layer = layer_of<T>(sizes, U, V, u, v, b, sharpness, epsilon);
        const training::Forward<T> call{
            elements<T>(X, "X", sizes.sequence()), elements<T>(H0, "H0", sizes.state()),
            maybe<T>(C, "C", sizes.state()),       elements<T>(Y, "Y", sizes.sequence()),
            maybe<T>(M, "M", sizes.tokens()),      maybe<T>(gates, "gates", sizes.gates()),
        };
        const nb::gil_scoped_release free;
        training::run_forward(layer, call, threads, isa);
    });
}

void backward(const std::string& unit, const Array& dY, const MaybeArray& dM, const Array& X, const Array& H0,
              const Array& U, const Array& V, const MaybeArray& u, const MaybeArray& v, const MaybeArray& C0,
              const Array& Y, const MaybeArray& M, const Array& gates, const Writable& dH, const MaybeWritable& dC,
              const Writable& dX, const Writable& dU, const Writable& dV, const MaybeWritable& du,
              const MaybeWritable& dv, const MaybeWritable& dS, double sharpness, double epsilon, int threads,
              const std::string& isa) {
    const Sizes sizes(unit, X, C0.has_value() && dC.has_value(), dM && u && v && M && du && dv && dS);
    by_type(X, [&](auto zero) {
        using T = decltype(zero);
        // A copy: M decides which memory is read, and another thread may write into the caller's array.
        const T* const given = maybe<T>(M, "M", sizes.tokens());
        const std::vector<T> m(given, given + (M ? M->size() : 0));
        const auto layer = layer_of<T>(sizes, U, V, u, v, 0, sharpness, epsilon);
        const training::Backward<T> call{
            elements<T>(X, "X", sizes.sequence()),
            elements<T>(H0, "H0", sizes.state()),
            maybe<T>(C0, "C0", sizes.state()),
            elements<T>(Y, "Y", sizes.sequence()),
            M ? m.data() : nullptr,
            elements<T>(gates, "gates", sizes.gates()),
            elements<T>(dY, "dY", sizes.sequence()),
            maybe<T>(dM, "dM", sizes.tokens()),
            elements<T>(dH, "dH", sizes.state()),
            maybe<T>(dC, "dC", sizes.state()),
            elements<T>(dX, "dX", sizes.sequence()),
            elements<T>(dU, "dU", sizes.matrix()),
            elements<T>(dV, "dV", sizes.matrix()),
            maybe<T>(du, "du", {sizes.D}),
            maybe<T>(dv, "dv", {sizes.D}),
            maybe<T>(dS, "dS", sizes.tokens()),
        };
        for (const T each : m)
            if (!(each >= 0 && each <= 1)) throw nb::value_error("M must hold values between 0 and 1");
        const nb::gil_scoped_release free;
        training::run_backward(layer, call, threads, isa);
    });
}

bool all_finite(const std::vector<Array>& arrays, int threads) {
    std::size_t bytes = 0;
    for (const Array& array : arrays) bytes += array.nbytes();
    constexpr std::size_t kWorthStarting = 1 << 20;
    Team team(bytes < kWorthStarting ? 1 : threads);
    bool finite = true;
    for (const Array& array : arrays)
        by_type(array, [&](auto zero) {
            using T = decltype(zero);
            const T* x = elements<T>(array, "an array", shape_of(array));
            const nb::gil_scoped_release free;
            finite = finite && training::all_finite(x, array.size(), team);
        });
    return finite;
}

}  // namespace

void bind_training(nb::module_& m) {
    m.def("all_finite", all_finite, "arrays"_a, nb::kw_only(), "threads"_a = 1,
          "Whether all values of all arrays are finite.");
    m.attr("TRAIN_PADDING") = training::kPadding;
    m.def("train_forward", forward, "unit"_a, "X"_a, "H0"_a, "U"_a, "V"_a, "u"_a.none(), "v"_a.none(), "b"_a,
          "C"_a.none(), "Y"_a, "M"_a.none(), "gates"_a.none(), nb::kw_only(), "sharpness"_a, "epsilon"_a,
          "threads"_a = 1, "isa"_a = "auto",
          "The forward pass: writes Y, M and gates; C, if the unit has one, is the first cell on entry and the last on "
          "return. A dense unit has no u, v and M, and ignores b, sharpness and epsilon.");
    m.def("train_backward", backward, "unit"_a, "dY"_a, "dM"_a.none(), "X"_a, "H0"_a, "U"_a, "V"_a, "u"_a.none(),
          "v"_a.none(), "C0"_a.none(), "Y"_a, "M"_a.none(), "gates"_a, "dH"_a, "dC"_a.none(), "dX"_a, "dU"_a, "dV"_a,
          "du"_a.none(), "dv"_a.none(), "dS"_a.none(), nb::kw_only(), "sharpness"_a, "epsilon"_a, "threads"_a = 1,
          "isa"_a = "auto",
          "The backward pass: writes dX, dU, dV, du, dv and dS; dH and dC are the last state's gradients on entry, the "
          "first state's on return.");
}

}  // namespace vcdeploy
