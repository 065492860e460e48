// libFuzzer: whole models with any weights, states and settings, on every instruction set of this processor.
//
// A model is refused with an exception or it runs. m is a fraction or NaN. The same bits come out in one piece and step
// by step, with one thread and two and, if quantized, on every instruction set.
#include <exception>
#include <optional>

#include "bytes.h"
#include "engine/model.h"
#include "engine/session.h"
#include "kernels/dispatch.h"

namespace vcdeploy::fuzz {
namespace {

struct Weights {
    std::vector<float> embedding, output, bias;
    struct Layer {
        std::vector<float> U, V, u, v;
        float b;
        std::vector<float> bias;  // of a dense unit; empty if it has none
    };
    std::vector<Layer> layers;
};

MatrixView view(const std::vector<float>& values, int columns) {
    return {reinterpret_cast<const unsigned char*>(values.data()), Precision::f32, nullptr, columns};
}

struct Result {
    std::vector<float> logits, state, m;
};

Result run(Model& model, const std::vector<std::int64_t>& tokens, int T, int B, const std::vector<float>& state) {
    const std::size_t count = static_cast<std::size_t>(T) * B;
    const Network& network = *model.network();
    Result result{std::vector<float>(count * network.vocab()), std::vector<float>(state.size()),
                  std::vector<float>(count * network.layers())};
    model.run(tokens.data(), T, B, state.data(), Logits::all, result.logits.data(), result.state.data(),
              result.m.data(), [] {});
    return result;
}

// One step at a time.
Result run_slowly(Model& model, const std::vector<std::int64_t>& tokens, int T, int B, std::vector<float> state) {
    Result whole;
    for (int t = 0; t < T; ++t) {
        const Result step = run(model, {tokens.begin() + t * B, tokens.begin() + (t + 1) * B}, 1, B, state);
        whole.logits.insert(whole.logits.end(), step.logits.begin(), step.logits.end());
        whole.m.insert(whole.m.end(), step.m.begin(), step.m.end());
        state = step.state;
    }
    whole.state = state;
    return whole;
}

// One sequence at a time.
Result run_apart(Model& model, const std::vector<std::int64_t>& tokens, int T, int B, const std::vector<float>& state) {
    const Network& network = *model.network();
    const std::size_t dim = network.dim(), vocab = network.vocab(), layers = network.layers(),
                      rows = state.size() / dim / B;
    Result whole{std::vector<float>(T * B * vocab), state, std::vector<float>(T * B * layers)};
    for (int n = 0; n < B; ++n) {
        std::vector<std::int64_t> column(T);
        for (int t = 0; t < T; ++t) column[t] = tokens[t * B + n];
        std::vector<float> before(rows * dim);
        for (std::size_t s = 0; s < rows; ++s)
            std::copy_n(state.data() + (s * B + n) * dim, dim, before.data() + s * dim);
        const Result one = run(model, column, T, 1, before);
        for (int t = 0; t < T; ++t) {
            std::copy_n(one.logits.data() + t * vocab, vocab, whole.logits.data() + (t * B + n) * vocab);
            std::copy_n(one.m.data() + t * layers, layers, whole.m.data() + (t * B + n) * layers);
        }
        for (std::size_t s = 0; s < rows; ++s)
            std::copy_n(one.state.data() + s * dim, dim, whole.state.data() + (s * B + n) * dim);
    }
    return whole;
}

// A session reads, is saved, generates, and generates the same again after restoring.
void attack_session(Model& model, const std::vector<std::int64_t>& tokens, int T, int B, Bytes& bytes) {
    constexpr int kLength = 4;
    const Network& network = *model.network();
    const std::size_t vocab = network.vocab(), layers = network.layers(), dim = network.dim();
    Sampling options;
    options.temperature = bytes.one_of({0.0, 0.8, 1e-300, 1e300});
    options.top_k = bytes.number(0, 3);
    options.top_p = 0.9;
    options.min_p = bytes.one_of({0.0, 0.1, 1.0});
    options.repetition_penalty = bytes.one_of({1.0, 1.3, 1e-30, 1e30});
    options.repetition_window = bytes.number(1, 3);
    if (bytes.flag()) options.stop = {{0}, {bytes.number(0, network.vocab() - 1), 0}};
    options.check();
    const std::vector<Sampling> sampling(B, options);
    std::vector<std::uint8_t> allowed(B * vocab, 1);
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] = i % vocab == 0 || bytes.flag();
    std::vector<double> uniforms(kLength * B, bytes.one_of({0.0, 0.3, 0.999, 1.0}));

    Session session(model.network(), B);
    session.feed(session.all(), tokens.data(), T, [] {});
    session.step(tokens.data(), [] {});
    std::vector<float> state(network.state_rows() * B * dim), m(B * layers);
    std::vector<Past> past(B);
    session.save(session.all(), state.data(), m.data(), past.data(), [] {});
    const auto generate = [&] {
        std::vector<std::int64_t> made(kLength * B), lengths(B), most(B, kLength), others(kLength * B);
        std::vector<float> fractions(kLength * B * layers);
        std::vector<double> log_probabilities(kLength * B), other_log_probabilities(kLength * B);
        try {
            session.generate(session.all(),
                             {sampling.data(), uniforms.data(), kLength, most.data(), allowed.data(), 1, made.data(),
                              fractions.data(), log_probabilities.data(), others.data(), other_log_probabilities.data(),
                              lengths.data()},
                             [] {});
        } catch (const std::domain_error&) {  // logits that are not finite
            return std::vector<std::int64_t>();
        }
        for (int n = 0; n < B; ++n)
            for (int t = 0; t < lengths[n]; ++t) {
                const std::int64_t token = made[t * B + n];
                require(token >= 0 && token < network.vocab() && allowed[n * vocab + token],
                        "tokens are allowed symbols");
            }
        made.insert(made.end(), lengths.begin(), lengths.end());
        return made;
    };
    const std::vector<std::int64_t> first = generate();
    session.restore(session.all(), state.data(), m.data(), past.data(), [] {});
    require(generate() == first, "a restored session generates the same");
}

void require_same(const Result& one, const Result& other, const char* promise) {
    require(same(one.logits, other.logits) && same(one.state, other.state) && same(one.m, other.m), promise);
}

void attack(Bytes bytes) {
    const UnitSpec& spec = kUnits[bytes.number(0, kUnitCount - 1)];
    const Precision precision = static_cast<Precision>(bytes.number(0, kPrecisionCount - 1));
    const int dim = bytes.flag() ? bytes.number(1, 40) : bytes.one_of({1, 15, 16, 17, 63, 64, 65, 97, 130});
    const int vocab = bytes.number(1, 20), layers = bytes.number(1, 2), T = bytes.number(1, 6), B = bytes.number(1, 3);
    const bool wild_weights = bytes.number(0, 3) == 0, wild_state = bytes.flag();
    const float scale = bytes.one_of({0.3f, 1.0f, 30.0f, 1e-20f, 1e18f});
    const double sharpness = bytes.flag() ? bytes.one_of({0.1, 1.0, 8.0}) : bytes.raw<double>();
    const double epsilon = bytes.flag() ? 1e-3 : bytes.raw<double>();
    const std::size_t rows = static_cast<std::size_t>(spec.gates) * dim, matrix = rows * dim;

    Weights weights;
    weights.embedding = bytes.numbers(static_cast<std::size_t>(vocab) * dim, scale, wild_weights);
    weights.output = bytes.numbers(static_cast<std::size_t>(vocab) * dim, scale, wild_weights);
    weights.bias = bytes.numbers(vocab, scale, wild_weights);
    ModelWeights views{spec.unit, dim, vocab, view(weights.embedding, dim), {}, view(weights.output, dim), nullptr};
    views.bias = weights.bias.data();
    for (int l = 0; l < layers; ++l) {
        auto one = [&](std::size_t count) { return bytes.numbers(count, scale, wild_weights); };
        weights.layers.push_back({one(matrix), one(matrix), one(dim), one(dim), one(1)[0], {}});
        if (!spec.variable && bytes.flag())
            weights.layers.back().bias = one(static_cast<std::size_t>(spec.planes()) * dim);
    }
    for (const Weights::Layer& each : weights.layers) {
        LayerWeights& layer = views.layers.emplace_back(LayerWeights{view(each.U, dim), view(each.V, dim)});
        if (!each.bias.empty()) layer.bias = each.bias.data();
        if (!spec.variable) continue;
        layer.u = each.u.data();
        layer.v = each.v.data();
        layer.b = each.b;
    }
    const std::size_t state_rows = static_cast<std::size_t>(layers) * spec.state_rows;
    const std::vector<float> state = bytes.numbers(state_rows * B * dim, 0.5f, wild_state);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(T) * B);
    for (std::int64_t& each : tokens) each = bytes.number(0, vocab - 1);
    const std::size_t table = bytes.flag() ? std::size_t{1} << 20 : 0;
    const bool two_threads = bytes.number(0, 15) == 15;

    std::optional<Result> quantized;
    for (const Kernels* kernels : usable_kernels()) {
        std::optional<Model> model;
        try {
            model.emplace(views, ModelOptions{Softness(sharpness, epsilon), precision, 1, table, kernels});
        } catch (const std::invalid_argument&) {
            return;  // whatever it refuses, it must refuse on all of them
        }
        const Result whole = run(*model, tokens, T, B, state);
        for (const float m : whole.m) require(!(m < 0 || m > 1), "m is a fraction or NaN");
        require_same(whole, run_slowly(*model, tokens, T, B, state), "the same bits step by step");
        if (two_threads) {
            Model other(views, {Softness(sharpness, epsilon), precision, 2, table, kernels});
            require_same(whole, run(other, tokens, T, B, state), "the same bits with two threads");
        }
        if (is_quantized(precision)) {
            if (quantized) require_same(*quantized, whole, "the same bits on every instruction set");
            quantized = whole;
        }
        require_same(whole, run_apart(*model, tokens, T, B, state), "the same bits in a batch as alone");
        attack_session(*model, tokens, T, B, bytes);
    }
}

}  // namespace
}  // namespace vcdeploy::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    vcdeploy::fuzz::attack({data, size});
    return 0;
}
