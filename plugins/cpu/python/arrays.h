// Array checks for the bindings, and lookup of units and precisions by name.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/spec.h"

namespace vcdeploy {

namespace nb = nanobind;

using Array = nb::ndarray<nb::ro, nb::device::cpu>;  // any type and shape; elements() checks them
using Shape = std::vector<std::size_t>;

inline std::string to_string(const Shape& shape) {
    std::string text;
    for (std::size_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
    return "[" + text + "]";
}

template <class AnyArray>
Shape shape_of(const AnyArray& array) {
    Shape shape;
    for (std::size_t i = 0; i < array.ndim(); ++i) shape.push_back(array.shape(i));
    return shape;
}

template <class AnyArray>
bool is_contiguous(const AnyArray& array) {
    std::int64_t step = 1;
    for (std::size_t i = array.ndim(); i-- > 0;) {
        if (array.size() > 0 && array.shape(i) > 1 && array.stride(i) != step) return false;
        step *= static_cast<std::int64_t>(array.shape(i));
    }
    return true;
}

template <class T>
inline constexpr const char* kTypeName = "";
template <>
inline constexpr const char* kTypeName<float> = "float32";
template <>
inline constexpr const char* kTypeName<unsigned char> = "uint8";
template <>
inline constexpr const char* kTypeName<double> = "float64";
template <>
inline constexpr const char* kTypeName<std::int64_t> = "int64";

// The elements of an array, which must have this type and shape; const unless the array is writable.
template <class T, class AnyArray>
auto elements(const AnyArray& array, const std::string& name, const Shape& shape) {
    if (array.dtype() != nb::dtype<T>()) throw nb::type_error((name + " must be an array of " + kTypeName<T>).c_str());
    if (shape_of(array) != shape)
        throw nb::value_error(
            (name + " must have the shape " + to_string(shape) + ", not " + to_string(shape_of(array))).c_str());
    if (!is_contiguous(array))
        throw nb::value_error((name + " must be contiguous: pass it through numpy.ascontiguousarray").c_str());
    if (reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) != 0)
        throw nb::value_error((name + " must be aligned: pass it through numpy.require(…, requirements='CA')").c_str());
    constexpr bool writable = !std::is_const_v<std::remove_pointer_t<decltype(array.data())>>;
    return static_cast<std::conditional_t<writable, T*, const T*>>(array.data());
}

// The row with this name in a table of plugins/common/spec.h.
template <class Spec, std::size_t Count>
const Spec& row_named(const char* what, const std::string& name, const Spec (&rows)[Count]) {
    std::string names;
    for (const Spec& each : rows) {
        if (name == each.name) return each;
        names += std::string(names.empty() ? "" : ", ") + each.name;
    }
    throw nb::value_error((std::string("no ") + what + " '" + name + "': choose from " + names).c_str());
}

inline Unit unit_of(const std::string& name) { return row_named("unit", name, kUnits).unit; }
inline Precision precision_of(const std::string& name) { return row_named("precision", name, kPrecisions).precision; }

}  // namespace vcdeploy
