// The engine of plugins/cpu for a browser: a WebAssembly module with a C interface, one thread, one stream per session.
//
// vcdeploy/serving/page/wasm.js is the other side. It reads the model file, checks the sizes of all weights, and copies
// them here; so pointers and sizes are trusted. Calls that fail return 0 and leave their message in vcdeploy_message.
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/session.h"
#include "kernels/dispatch.h"

#define VCDEPLOY_WEB extern "C" __attribute__((used, visibility("default")))

namespace vcdeploy::web {
namespace {

constexpr std::size_t kTableBytes = std::size_t{64} << 20;  // as for the native backend

// A matrix as a file stores it, and the scales of its rows if it is quantized.
struct Matrix {
    const unsigned char* data;
    const float* scales;

    MatrixView view(Precision precision, int columns) const { return {data, precision, scales, columns}; }
};

struct LayerOfFile {
    Matrix U, V;
    const float *u, *v, *b;
};

// The weights of a variable unit. Every field takes four bytes, except the doubles.
struct ModelOfFile {
    double sharpness, epsilon;
    std::int32_t unit, precision, stored;  // rows of kUnits and kPrecisions; stored: the precision of the matrices here
    std::int32_t dim, vocab, layers;
    Matrix embedding, output;
    const float* bias;
    const LayerOfFile* layer;  // [layers]
};

// What a call of vcdeploy_generate takes and where its results go, as in Generation.
struct Request {
    double temperature, top_p, min_p, repetition_penalty;
    std::int32_t top_k, length, alternatives;
    const double* uniforms;       // [length]
    const std::uint8_t* allowed;  // [vocab], or null
    std::int64_t* tokens;         // [length]
    float* m;                     // [length, layers]
    double* log_probabilities;    // [length]
    std::int64_t* others;         // [length, alternatives]: the most likely symbols
    double* other_log_probabilities;
};

const Pause kOn = [] {};
std::string message;

// What `work` returns, or 0 after an exception.
template <class Work>
auto guarded(const Work& work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception& error) {
        message = error.what();
        return {};
    }
}

Network* load(const ModelOfFile& file) {
    const auto matrix = [&](const Matrix& each) { return each.view(static_cast<Precision>(file.stored), file.dim); };
    ModelWeights weights{static_cast<Unit>(file.unit), file.dim, file.vocab, matrix(file.embedding), {},
                         matrix(file.output),          file.bias};
    for (int l = 0; l < file.layers; ++l) {
        const LayerOfFile& each = file.layer[l];
        LayerWeights layer{matrix(each.U), matrix(each.V)};
        layer.u = each.u;
        layer.v = each.v;
        layer.b = *each.b;
        weights.layers.push_back(layer);
    }
    // WebAssembly has no instruction that widens f16: widened once, its products have the same bits and are faster.
    const auto precision = static_cast<Precision>(file.precision);
    return new Network(weights,
                       {Softness(file.sharpness, file.epsilon), is_quantized(precision) ? precision : Precision::f32, 1,
                        kTableBytes, &choose_kernels("auto")});
}

void generate(Session& session, const Request& request) {
    Sampling sampling;
    sampling.temperature = request.temperature;
    sampling.top_p = request.top_p;
    sampling.min_p = request.min_p;
    sampling.repetition_penalty = request.repetition_penalty;
    sampling.top_k = request.top_k;
    sampling.check();
    const std::int64_t most = request.length;
    std::int64_t length;
    session.generate(
        session.all(),
        {&sampling, request.uniforms, request.length, &most, request.allowed, request.alternatives, request.tokens,
         request.m, request.log_probabilities, request.others, request.other_log_probabilities, &length},
        kOn);
}

}  // namespace
}  // namespace vcdeploy::web

using namespace vcdeploy;
using namespace vcdeploy::web;

VCDEPLOY_WEB void* vcdeploy_allocate(std::size_t bytes) { return std::malloc(bytes); }
VCDEPLOY_WEB void vcdeploy_free(void* memory) { std::free(memory); }

// The message of the last call that failed.
VCDEPLOY_WEB const char* vcdeploy_message() { return message.c_str(); }

// Packs the weights, which the caller may then free.
VCDEPLOY_WEB std::shared_ptr<const Network>* vcdeploy_load(const ModelOfFile* file) {
    return guarded([&] { return new std::shared_ptr<const Network>(load(*file)); });
}
VCDEPLOY_WEB void vcdeploy_unload(std::shared_ptr<const Network>* model) { delete model; }

// A stream that has read nothing. It keeps its model.
VCDEPLOY_WEB Session* vcdeploy_open(const std::shared_ptr<const Network>* model) {
    return guarded([&] { return new Session(*model, 1); });
}
VCDEPLOY_WEB void vcdeploy_close(Session* session) { delete session; }

// Reads ids [count], each from 0 to vocab - 1.
VCDEPLOY_WEB int vcdeploy_feed(Session* session, const std::int64_t* ids, int count) {
    return guarded([&] {
        session->feed(session->all(), ids, count, kOn);
        return 1;
    });
}

VCDEPLOY_WEB int vcdeploy_generate(Session* session, const Request* request) {
    return guarded([&] {
        generate(*session, *request);
        return 1;
    });
}
