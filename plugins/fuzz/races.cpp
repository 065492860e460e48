// For ThreadSanitizer: models and training passes from several threads at once, each with helper threads of its own.
//
// Usage: races [seconds]. Every call must return the bits that the same call returns alone.
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "bytes.h"
#include "engine/model.h"
#include "engine/session.h"
#include "kernels/dispatch.h"
#include "training/training.h"

namespace vcdeploy::fuzz {
namespace {

constexpr int kDim = 160, kVocab = 40, kSteps = 24;  // large enough for a step to be split

std::vector<float> numbers(std::size_t count, int seed) {
    const std::uint8_t bytes[] = {static_cast<std::uint8_t>(seed), 1, 2, 3};
    return Bytes(bytes, sizeof bytes).numbers<float>(count, 0.1f, false);
}

MatrixView view(const std::vector<float>& values) {
    return {reinterpret_cast<const unsigned char*>(values.data()), Precision::f32, nullptr, kDim};
}

// Calls run() alone, then from `threads` threads until the time is up; all results must be the same.
long attack(const char* what, int threads, double seconds, const std::function<std::vector<float>()>& run) {
    using Clock = std::chrono::steady_clock;
    const std::vector<float> expected = run();
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::atomic<long> tries{0};
    std::vector<std::thread> callers;
    for (int n = 0; n < threads; ++n)
        callers.emplace_back([&] {
            do {
                require(same(expected, run()), what);
                ++tries;
            } while (Clock::now() < end);
        });
    for (std::thread& each : callers) each.join();
    std::printf("%s: %ld tries, 0 failures\n", what, tries.load());
    return tries;
}

std::vector<float> inference(Model& model) {
    std::vector<std::int64_t> tokens(kSteps);
    for (int t = 0; t < kSteps; ++t) tokens[t] = t * 7 % kVocab;
    const Network& network = *model.network();
    std::vector<float> state(network.state_rows() * kDim), logits(kSteps * kVocab), m(kSteps * network.layers());
    std::vector<float> after(state.size());
    model.run(tokens.data(), kSteps, 1, state.data(), Logits::all, logits.data(), after.data(), m.data(), [] {});
    logits.insert(logits.end(), after.begin(), after.end());
    return logits;
}

// The state of a session of its own, and steps of one that all callers share.
std::vector<float> sessions(Model& model, Session& shared) {
    const Network& network = *model.network();
    Session own(model.network(), 2);
    const std::vector<std::int64_t> tokens{1, 2, 3, 4, 5, 6};
    own.feed(own.all(), tokens.data(), 3, [] {});
    shared.reset({0, 1}, [] {});
    shared.step(tokens.data(), [] {});
    std::vector<float> state(network.state_rows() * 2 * kDim), m(2 * network.layers());
    std::vector<Past> past(2);
    own.save(own.all(), state.data(), m.data(), past.data(), [] {});
    return state;
}

std::vector<float> training(Unit unit) {
    constexpr int kBatch = 8;
    constexpr std::size_t kTokens = kSteps * kBatch;
    const std::size_t matrix = static_cast<std::size_t>(gates_of(unit)) * kDim * kDim;
    const bool has_cell = spec_of(unit).has_cell(), variable = spec_of(unit).variable;
    const auto if_variable = [variable](auto& values) { return variable ? values.data() : nullptr; };
    const auto X = numbers(kTokens * kDim, 1), H0 = numbers(kBatch * kDim, 2), C0 = H0, U = numbers(matrix, 3),
               V = numbers(matrix, 4), u = numbers(kDim, 5), v = numbers(kDim, 6), dM = numbers(kTokens, 7);
    const vcdeploy::training::TrainedLayer<float> layer{
        unit, kSteps, kBatch, kDim, Softness(1, 1e-3), U.data(), V.data(), if_variable(u), if_variable(v), 0.5f};
    std::vector<float> Y(X.size()), M(kTokens), gates(kTokens * gates_of(unit) * (kDim + 32)), C = C0;
    vcdeploy::training::run_forward(
        layer, {X.data(), H0.data(), has_cell ? C.data() : nullptr, Y.data(), if_variable(M), gates.data()}, 2, "auto");
    std::vector<float> dH = H0, dC = C0, dX(X.size()), dU(matrix), dV(matrix), du(kDim), dv(kDim), dS(kTokens);
    vcdeploy::training::run_backward(
        layer,
        {X.data(), H0.data(), has_cell ? C0.data() : nullptr, Y.data(), if_variable(M), gates.data(), X.data(),
         if_variable(dM), dH.data(), has_cell ? dC.data() : nullptr, dX.data(), dU.data(), dV.data(), if_variable(du),
         if_variable(dv), if_variable(dS)},
        2, "auto");
    dU.insert(dU.end(), dX.begin(), dX.end());
    return dU;
}

}  // namespace
}  // namespace vcdeploy::fuzz

int main(int count, char** arguments) {
    using namespace vcdeploy;
    using namespace vcdeploy::fuzz;
    const double seconds = (count > 1 ? std::atof(arguments[1]) : 20) / (5.0 * kUnitCount);
    for (const UnitSpec& spec : kUnits) {
        const std::size_t matrix = static_cast<std::size_t>(spec.gates) * kDim * kDim;
        const auto embedding = numbers(kVocab * kDim, 1), output = numbers(kVocab * kDim, 2), bias = numbers(kVocab, 3),
                   U = numbers(matrix, 4), V = numbers(matrix, 5), u = numbers(kDim, 6), v = numbers(kDim, 7),
                   gate_bias = numbers(spec.planes() * kDim, 8);
        LayerWeights layer{view(U), view(V)};
        if (spec.variable) {
            layer.u = u.data();
            layer.v = v.data();
            layer.b = 0.5f;
        } else {
            layer.bias = gate_bias.data();
        }
        for (const Precision precision : {Precision::f32, Precision::int8, Precision::w8a8}) {
            Model model({spec.unit, kDim, kVocab, view(embedding), {layer}, view(output), bias.data()},
                        {Softness(1, 1e-3), precision, 3, 1 << 20, &choose_kernels("auto")});
            attack((std::string("one ") + spec.name + " model, three callers, three threads").c_str(), 3, seconds,
                   [&] { return inference(model); });
            Session shared(model.network(), 2);
            attack((std::string("sessions of a ") + spec.name + " model, three callers").c_str(), 3, seconds,
                   [&] { return sessions(model, shared); });
        }
        if (spec.resets_product) continue;  // not trained here
        attack((std::string("training passes of ") + spec.name + ", two callers, two threads").c_str(), 2, seconds,
               [&] { return fuzz::training(spec.unit); });
    }
}
