// The units and the precisions, one row each, for cpu, onnxruntime, tensorrt and emulator.
//
// vcdeploy/spec.py is the same table in Python; tests/plugins/test_spec.py keeps the two in sync. Compiles as C++17 and
// as CUDA, and needs no other header.
#pragma once

namespace vcdeploy {

enum class Unit { vcrnn, vcgru, vclstm };

struct UnitSpec {
    Unit unit;
    const char* name;
    const char* op;  // the ONNX op type and the name of the TensorRT plugin
    int gates;
    const char* gate_names[4];  // their order in the stacked weights U and V, [gates * D, D]
    int state_rows;             // rows of a layer's state per sequence: h, or h and c
    bool resets;                // the last gate reads r ⊙ hbar, so a step has two phases

    constexpr bool has_cell() const { return state_rows == 2; }
    constexpr int inputs() const { return has_cell() ? 8 : 7; }   // of the op: X, H0, U, V, u, v, b, and C0
    constexpr int outputs() const { return has_cell() ? 4 : 3; }  // Y, H, M, and C
};

inline constexpr UnitSpec kUnits[] = {
    {Unit::vcrnn, "vcrnn", "VCRNN", 1, {"h"}, 1, false},
    {Unit::vcgru, "vcgru", "VCGRU", 3, {"r", "z", "h"}, 1, true},
    {Unit::vclstm, "vclstm", "VCLSTM", 4, {"i", "f", "g", "o"}, 2, false},
};
inline constexpr int kUnitCount = sizeof kUnits / sizeof kUnits[0];

constexpr const UnitSpec& spec_of(Unit unit) { return kUnits[static_cast<int>(unit)]; }
constexpr int gates_of(Unit unit) { return spec_of(unit).gates; }

// How weights are stored. Sums are always wide: float, or int32 for int8.
enum class Precision { f32, f16, bf16, int8 };

struct PrecisionSpec {
    Precision precision;
    const char* name;
    int bytes;  // per weight
};

inline constexpr PrecisionSpec kPrecisions[] = {
    {Precision::f32, "f32", 4},
    {Precision::f16, "f16", 2},
    {Precision::bf16, "bf16", 2},
    {Precision::int8, "int8", 1},
};
inline constexpr int kPrecisionCount = sizeof kPrecisions / sizeof kPrecisions[0];

constexpr const PrecisionSpec& spec_of(Precision precision) { return kPrecisions[static_cast<int>(precision)]; }
constexpr int bytes_of(Precision precision) { return spec_of(precision).bytes; }

// A row's index is the value of its enumerator.
constexpr bool rows_are_in_order() {
    for (int i = 0; i < kUnitCount; ++i)
        if (static_cast<int>(kUnits[i].unit) != i) return false;
    for (int i = 0; i < kPrecisionCount; ++i)
        if (static_cast<int>(kPrecisions[i].precision) != i) return false;
    return true;
}
static_assert(rows_are_in_order(), "the rows of kUnits and kPrecisions must follow their enumerators");

}  // namespace vcdeploy
