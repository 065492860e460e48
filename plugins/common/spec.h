// The units and the precisions, one row each, for cpu, onnxruntime, tensorrt and emulator.
//
// vcdeploy/spec.py is the same table in Python; tests/plugins/test_spec.py keeps the two in sync. Compiles as C++17 and
// as CUDA, and needs no other header.
#pragma once

namespace vcdeploy {

// A dense unit is a variable one without its scheduler: everything is active, and the mask is 1. Except gru, which is
// PyTorch's: the last gate multiplies by r what U makes of h, and z keeps the state.
enum class Unit { vcrnn, vcgru, vclstm, rnn, gru_reset_first, gru, lstm };

struct UnitSpec {
    Unit unit;
    const char* name;
    const char* op;  // the ONNX op type, and for a variable unit the name of the TensorRT plugin
    bool variable;   // has a scheduler
    int gates;
    const char* gate_names[4];  // their order in the stacked weights U and V, [gates * D, D]
    int state_rows;             // rows of a layer's state per sequence: h, or h and c
    bool resets;                // the last gate reads r ⊙ hbar, so a step has two phases
    bool resets_product;        // r multiplies the product of the last gate, which is kept apart; not trained here

    constexpr bool has_cell() const { return state_rows == 2; }
    constexpr int planes() const { return gates + (resets_product ? 1 : 0); }  // sums and biases of a step, per row
    // Of a variable unit's op: X, H0, U, V, u, v, b, and C0; Y, H, M, and C.
    constexpr int inputs() const { return has_cell() ? 8 : 7; }
    constexpr int outputs() const { return has_cell() ? 4 : 3; }
};

inline constexpr UnitSpec kUnits[] = {
    {Unit::vcrnn, "vcrnn", "VCRNN", true, 1, {"h"}, 1, false, false},
    {Unit::vcgru, "vcgru", "VCGRU", true, 3, {"r", "z", "h"}, 1, true, false},
    {Unit::vclstm, "vclstm", "VCLSTM", true, 4, {"i", "f", "g", "o"}, 2, false, false},
    {Unit::rnn, "rnn", "RNN", false, 1, {"h"}, 1, false, false},
    {Unit::gru_reset_first, "gru-reset-first", "GRU", false, 3, {"r", "z", "h"}, 1, true, false},
    {Unit::gru, "gru", "GRU", false, 3, {"r", "z", "n"}, 1, false, true},
    {Unit::lstm, "lstm", "LSTM", false, 4, {"i", "f", "g", "o"}, 2, false, false},
};
inline constexpr int kUnitCount = sizeof kUnits / sizeof kUnits[0];
inline constexpr int kVariableCount = 3;  // the variable units come first; the GPU and ONNX Runtime have only these

constexpr const UnitSpec& spec_of(Unit unit) { return kUnits[static_cast<int>(unit)]; }
constexpr int gates_of(Unit unit) { return spec_of(unit).gates; }

// How weights are stored and multiplied. Sums are always wide: float, or int32 if activations are quantized.
enum class Precision { f32, f16, bf16, int8, w8a8 };

struct PrecisionSpec {
    Precision precision;
    const char* name;
    int bytes;   // per weight
    int levels;  // that activations are quantized to, at most; 0: they are not
};

inline constexpr PrecisionSpec kPrecisions[] = {
    {Precision::f32, "f32", 4, 0},         {Precision::f16, "f16", 2, 0},     {Precision::bf16, "bf16", 2, 0},
    {Precision::int8, "int8", 1, 1 << 14}, {Precision::w8a8, "w8a8", 1, 127},
};
inline constexpr int kPrecisionCount = sizeof kPrecisions / sizeof kPrecisions[0];

constexpr const PrecisionSpec& spec_of(Precision precision) { return kPrecisions[static_cast<int>(precision)]; }
constexpr int bytes_of(Precision precision) { return spec_of(precision).bytes; }
constexpr bool is_quantized(Precision precision) { return spec_of(precision).levels > 0; }
// Whether the levels of activations take a byte each, instead of two.
constexpr bool has_byte_levels(Precision precision) {
    return is_quantized(precision) && spec_of(precision).levels < 128;
}

// A row's index is the value of its enumerator.
constexpr bool rows_are_in_order() {
    for (int i = 0; i < kUnitCount; ++i)
        if (static_cast<int>(kUnits[i].unit) != i || kUnits[i].variable != (i < kVariableCount)) return false;
    for (int i = 0; i < kPrecisionCount; ++i)
        if (static_cast<int>(kPrecisions[i].precision) != i) return false;
    return true;
}
static_assert(rows_are_in_order(), "the rows of kUnits and kPrecisions must follow their enumerators");

}  // namespace vcdeploy
