// C functions for ctypes over prepared() and launch() of plugins/tensorrt (tests/plugins/emulated.py).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>

#include "launch.h"

using namespace vcdeploy;

// Replaces the emulated GPU. properties: multiprocessors, bytes of shared memory, cooperative, clusters, the
// architecture of the kernels' PTX, the largest cluster that fits, blocks of a grid per multiprocessor. All kernels start with the default shared memory
// limit.
extern "C" void vcdeploy_gpu(const int* properties) {
    emulator::Gpu fresh{};
    fresh.present = true;
    fresh.multiprocessors = properties[0], fresh.shared_bytes = std::size_t(properties[1]);
    fresh.cooperative = properties[2] != 0, fresh.clusters = properties[3];
    fresh.compiled_for = properties[4], fresh.most_of_a_cluster = properties[5], fresh.resident = properties[6];
    emulator::gpu() = fresh;
}

// unit: its row in plugins/common/spec.h; types: Types; sizes: T, B, D; tensors: X, H0, U, V, u, v, b, C0, Y, H, M, C;
// bytes: of each. between: dimensions of another layer that is prepared before this one is launched, or 0. Output:
// found, which is path, blocks, members, alone, on_chip, shared bytes. Returns 0, or -1 with a message.
extern "C" int vcdeploy_launch(int unit, int types, const int* sizes, const double* settings, void* const* tensors,
                               const long long* bytes, int wanted, int between, unsigned long long seed,
                               long long* found, char* message, int length) {
    try {
        const Unit kind{unit};
        const Types of{types};
        const Sizes size{sizes[0], sizes[1], sizes[2]};
        const int rooms = rooms_needed(kind, size.D, Path(wanted));
        const Plan plan = prepared(kind, of, std::max(size.B, 1), size.D, Path(wanted), rooms);
        if (between > 0) prepared(kind, of, 1, between, Path(wanted), kMostRooms);
        const long long numbers[] = {int(plan.path), plan.blocks,  plan.members,
                                     plan.alone,     plan.on_chip, (long long)plan.shared_bytes};
        std::copy(std::begin(numbers), std::end(numbers), found);

        emulator::Gpu& gpu = emulator::gpu();
        gpu.seed = seed;
        gpu.memory.clear();
        Tensors all{};
        for (int k = 0; k < 12; ++k) {
            if (k < 8)
                all.in[k] = tensors[k];
            else
                all.out[k - 8] = tensors[k];
            if (const auto* from = static_cast<const char*>(tensors[k])) gpu.memory.push_back({from, from + bytes[k]});
        }
        // Uninitialised, as TensorRT provides it, with a guard at the end.
        const std::size_t room = workspace_bytes(kind, size.B, size.D, rooms) / sizeof(float), guard = 64;
        const std::unique_ptr<float, void (*)(void*)> workspace(
            static_cast<float*>(std::aligned_alloc(256, ((room + guard) * sizeof(float) + 255) / 256 * 256)),
            std::free);
        std::fill_n(workspace.get(), room, std::numeric_limits<float>::quiet_NaN());
        std::fill_n(workspace.get() + room, guard, 7.0f);
        gpu.memory.push_back(
            {reinterpret_cast<char*>(workspace.get()), reinterpret_cast<char*>(workspace.get() + room)});
        const cudaError_t error =
            launch(kind, of, plan, size, float(settings[0]), float(settings[1]), all, workspace.get(), nullptr);
        if (error != cudaSuccess) throw std::runtime_error(std::string(cudaGetErrorName(error)) + ": " + gpu.fault);
        if (!std::all_of(workspace.get() + room, workspace.get() + room + guard, [](float each) { return each == 7; }))
            throw std::runtime_error("a block wrote past the workspace");
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(message, length, "%s", error.what());
        return -1;
    }
}
