// libFuzzer: the forward and backward pass of training in float and double, on every instruction set.
//
// Finite input only, as the ops promise (kernels/ops.py checks it). Results do not depend on the number of threads.
#include "training/training.h"

#include "bytes.h"
#include "kernels/dispatch.h"

namespace vcdeploy::fuzz {
namespace {

template <class T>
void attack(Bytes bytes) {
    const Unit unit =
        bytes.one_of({Unit::vcrnn, Unit::vcgru, Unit::vclstm, Unit::rnn, Unit::gru_reset_first, Unit::lstm});
    const bool variable = spec_of(unit).variable;
    const int steps = bytes.number(1, 5), batch = bytes.number(1, 9);
    const int dim = bytes.flag() ? bytes.number(1, 40) : bytes.one_of({1, 15, 16, 17, 31, 32, 33, 65, 97});
    const bool has_cell = spec_of(unit).has_cell();
    const T scale = bytes.one_of({T(0.3), T(3), T(1e-20), T(1e15)});
    const double sharpness = bytes.one_of({0.1, 1.0, 8.0, 1e-300, 1e300});
    const std::size_t D = dim, B = batch, tokens = steps * B,
                      W = (D + training::kPadding - 1) / training::kPadding * training::kPadding;
    const std::size_t matrix = gates_of(unit) * D * D;
    const auto numbers = [&](std::size_t count, T size) {
        std::vector<T> values = bytes.numbers<T>(count, size, true);
        for (T& each : values)
            if (!(each - each == 0)) each = 0;
        return values;
    };
    const auto X = numbers(tokens * D, 1), H0 = numbers(B * D, T(0.5)), C0 = numbers(has_cell ? B * D : 0, 1);
    const auto U = numbers(matrix, scale), V = numbers(matrix, scale), u = numbers(D, scale), v = numbers(D, scale);
    const auto dY = numbers(tokens * D, 1), dM = numbers(tokens, 1), dH0 = numbers(B * D, 1),
               dC0 = numbers(has_cell ? B * D : 0, 1);
    const auto if_variable = [variable](auto& values) { return variable ? values.data() : nullptr; };
    const training::TrainedLayer<T> layer{
        unit,           steps,          batch,           dim, Softness(sharpness, 1e-3), U.data(), V.data(),
        if_variable(u), if_variable(v), numbers(1, 1)[0]};
    const int most = bytes.number(0, 7) == 7 ? 2 : 1;
    for (const Kernels* kernels : usable_kernels()) {
        std::vector<T> expected;
        for (int threads = 1; threads <= most; ++threads) {
            std::vector<T> Y(tokens * D), M(tokens), gates(tokens * gates_of(unit) * W), C = C0;
            training::run_forward(
                layer, {X.data(), H0.data(), has_cell ? C.data() : nullptr, Y.data(), if_variable(M), gates.data()},
                threads, kernels->name);
            for (const T m : M)
                if (!(m >= 0 && m <= 1)) return;  // overflow on the way: no backward pass
            for (const T y : Y)
                if (!(y - y == 0)) return;
            std::vector<T> dH = dH0, dC = dC0, dX(tokens * D), dU(matrix), dV(matrix), du(D), dv(D), dS(tokens);
            training::run_backward(layer,
                                   {X.data(), H0.data(), has_cell ? C0.data() : nullptr, Y.data(), if_variable(M),
                                    gates.data(), dY.data(), if_variable(dM), dH.data(), has_cell ? dC.data() : nullptr,
                                    dX.data(), dU.data(), dV.data(), if_variable(du), if_variable(dv), if_variable(dS)},
                                   threads, kernels->name);
            std::vector<T> all;
            for (const std::vector<T>* each : {&Y, &M, &C, &dH, &dC, &dX, &dU, &dV, &du, &dv, &dS})
                all.insert(all.end(), each->begin(), each->end());
            if (threads > 1) require(same(expected, all), "the same bits with two threads");
            expected = all;
        }
    }
}

}  // namespace
}  // namespace vcdeploy::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    vcdeploy::fuzz::Bytes bytes(data, size);
    if (bytes.flag())
        vcdeploy::fuzz::attack<float>(bytes);
    else
        vcdeploy::fuzz::attack<double>(bytes);
    return 0;
}
