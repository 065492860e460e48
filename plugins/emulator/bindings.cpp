// C functions for ctypes that run the kernels of plugins/tensorrt in the emulator (tests/plugins/emulated.py).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "emulator.h"
#include "shared_memory.cuh"

namespace vcdeploy {
namespace {

// A float in column blocks of 8, as half weights are packed: then both are summed in the same order.
struct FloatByEight {
    float value;
};

template <class Real>
Real widened(FloatByEight number) {
    return number.value;
}

}  // namespace

template <>
constexpr int columns_of<FloatByEight> = 8;

}  // namespace vcdeploy

namespace {

using namespace vcdeploy;

struct Options {
    int threads, members, teams, alone, tile, on_chip, scope, barrier;
    std::uint64_t seed;
};

template <class Unit, class Weight, class Activation, class Real>
std::set<emulator::Place> emulate(const std::string& path, const int* sizes, const double* settings,
                                  void* const* tensors, const Options& options, std::size_t* weight_bytes,
                                  emulator::Counts* work) {
    const auto in = [&](int k) { return static_cast<const Activation*>(tensors[k]); };
    const auto out = [&](int k) { return static_cast<Activation*>(tensors[8 + k]); };
    Call<Weight, Activation, Real> call{};
    call.X = in(0), call.H0 = in(1), call.u = in(4), call.v = in(5), call.b = in(6), call.C0 = in(7);
    call.U = static_cast<const Weight*>(tensors[2]), call.V = static_cast<const Weight*>(tensors[3]);
    call.Y = out(0), call.H = out(1), call.M = out(2), call.C = out(3);
    call.T = sizes[0], call.B = sizes[1], call.D = sizes[2];
    call.sharpness = Real(settings[0]), call.epsilon = Real(settings[1]);
    call.reach = Real(std::log((1 - settings[1]) / settings[1]) / settings[0]);
    call.slices = slices_of(call.D);
    call.tile = tile_of<Unit>(call.D, chunk_of(path == "block"     ? Path::block
                                               : path == "cluster" ? Path::cluster
                                                                   : Path::grid));
    if (options.tile > 0) call.tile = std::min(call.tile, options.tile);
    call.members = options.members, call.alone = std::min(options.alone, call.D);

    const emulator::Place without{emulator::Scope(options.scope), options.barrier};
    emulator::Launch launch{};
    launch.threads = options.threads, launch.seed = options.seed;
    launch.without = options.barrier < 0 ? nullptr : &without;
    launch.work = work;
    const std::size_t T = call.T, B = call.B, D = call.D;
    const std::size_t weights = packed_place<Weight>(call.D, Unit::gates, padded(call.D) / columns_of<Weight>, 0);
    const std::size_t counts[] = {T * B * D, B * D, weights, weights, D, D, 1, B * D, T * B * D, B * D, T * B, B * D};
    for (int k = 0; k < 12; ++k)
        if (const auto* from = static_cast<const char*>(tensors[k]))
            launch.memory.push_back(k == 2 || k == 3
                                        ? emulator::Memory{from, from + counts[k] * sizeof(Weight), weight_bytes}
                                        : emulator::Memory{from, from + counts[k] * sizeof(Activation)});
    if (path == "block") {
        launch.blocks = call.B;
        launch.shared_bytes = block_numbers<Unit>(call.D) * sizeof(Real);
        return emulator::run(launch, [&] { block_kernel<Unit>(call); });
    }
    launch.blocks = options.teams * call.members;
    if (path == "cluster") {
        launch.cluster = call.members;
        launch.shared_bytes = cluster_numbers<Unit>(call.D) * sizeof(Real);
        return emulator::run(launch, [&] { cluster_kernel<Unit>(call); });
    }
    launch.cooperative = true;
    launch.shared_bytes = grid_numbers<Unit>(call.D, options.on_chip) * sizeof(Real);
    const std::size_t numbers = grid_workspace_numbers<Unit>(call.D, call.B, options.on_chip ? 0 : launch.blocks);
    constexpr std::size_t guard = 64;
    const Real unwritten = std::numeric_limits<Real>::quiet_NaN();
    // Aligned, since vectors in it are read 16 bytes at a time.
    std::unique_ptr<Real, void (*)(void*)> workspace(
        static_cast<Real*>(std::aligned_alloc(64, ((numbers + guard) * sizeof(Real) + 63) / 64 * 64)), std::free);
    call.workspace = workspace.get();
    launch.memory.push_back(
        {reinterpret_cast<char*>(call.workspace), reinterpret_cast<char*>(call.workspace + numbers)});
    std::fill_n(call.workspace, numbers, unwritten);
    std::fill_n(call.workspace + numbers, guard, Real(7));
    call.on_chip = options.on_chip;
    const auto passed = emulator::run(launch, [&] { grid_kernel<Unit>(call); });
    for (std::size_t k = 0; k < guard; ++k)
        if (call.workspace[numbers + k] != 7) throw emulator::Fault("a block wrote past the workspace");
    return passed;
}

template <class Weight, class Activation, class Real, class... Rest>
std::set<emulator::Place> of_unit(const std::string& unit, Rest&&... rest) {
    for (int i = 0; i < kVariableCount; ++i)
        if (unit == kUnits[i].name)
            return with_unit(kUnits[i].unit,
                             [&](auto kind) { return emulate<decltype(kind), Weight, Activation, Real>(rest...); });
    throw std::invalid_argument("no unit " + unit);
}

Unit with_gates(int gates) {
    for (int i = 0; i < kVariableCount; ++i)
        if (kUnits[i].gates == gates) return kUnits[i].unit;
    throw std::invalid_argument("no unit has " + std::to_string(gates) + " gates");
}

}  // namespace

// unit: its name in plugins/common/spec.h; path: block, cluster, grid; types: f32, half-weights,
// half, f64, f32-by-8.
// sizes: T, B, D; settings: sharpness, epsilon; tensors: X, H0, U, V, u, v, b, C0, Y, H, M, C.
// Output: passed, scope * 100 + name of each barrier passed, at most `room` of them; added to weight_bytes, the bytes of
// U and V each block read, and to work, counts of emulator::Work, either may be null. Returns the number of barriers, or
// -1 with a message of at most `length` bytes.
extern "C" int vcdeploy_emulate(const char* unit, const char* path, const char* types, const int* sizes,
                                const double* settings, void* const* tensors, const int* launch,
                                unsigned long long seed, int* passed, int room, std::size_t* weight_bytes,
                                unsigned long long* work, char* message, int length) {
    try {
        const Options options{launch[0], launch[1], launch[2], launch[3], launch[4],
                              launch[5], launch[6], launch[7], seed};
        const std::string way = path, type = types;
        std::set<emulator::Place> places;
        emulator::Counts counts{};
        if (type == "f32")
            places = of_unit<float, float, float>(unit, way, sizes, settings, tensors, options, weight_bytes, &counts);
        else if (type == "half-weights")
            places = of_unit<Half, float, float>(unit, way, sizes, settings, tensors, options, weight_bytes, &counts);
        else if (type == "f32-by-8")
            places = of_unit<FloatByEight, float, float>(unit, way, sizes, settings, tensors, options, weight_bytes,
                                                         &counts);
        else if (type == "half")
            places = of_unit<Half, Half, float>(unit, way, sizes, settings, tensors, options, weight_bytes, &counts);
        else
            places =
                of_unit<double, double, double>(unit, way, sizes, settings, tensors, options, weight_bytes, &counts);
        for (std::size_t kind = 0; work != nullptr && kind < counts.size(); ++kind) work[kind] += counts[kind];
        int count = 0;
        for (const auto& [scope, name] : places)
            if (count < room) passed[count++] = int(scope) * 100 + name;
        return count;
    } catch (const std::exception& error) {
        std::snprintf(message, length, "%s", error.what());
        return -1;
    }
}

// The plan for `gates` 1, 3 or 4. device: the members of Device; wanted: Path.
// Output: found, which is path, blocks, members, alone, on_chip, shared bytes, workspace bytes. Returns 0, or -1 with a
// message.
extern "C" int vcdeploy_plan(int gates, int weight_bytes, int B, int D, const int* device, int wanted, long long* found,
                             char* message, int length) {
    try {
        const Unit unit = with_gates(gates);
        const Device here{device[0], std::size_t(device[1]), device[2], device[3], device[4]};
        const Plan best = plan(unit, std::size_t(weight_bytes), B, D, needs_of(unit, D), here, Path(wanted));
        const long long numbers[] = {int(best.path),
                                     best.blocks,
                                     best.members,
                                     best.alone,
                                     best.on_chip,
                                     (long long)best.shared_bytes,
                                     (long long)needed_workspace(unit, B, D, best.on_chip ? 0 : device[4])};
        std::copy(std::begin(numbers), std::end(numbers), found);
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(message, length, "%s", error.what());
        return -1;
    }
}
