// Compiles every kernel: three units, three choices of types, three paths.
#include "launch.h"

#include <algorithm>
#include <cstdint>

#include "shared_memory.cuh"

namespace vcdeploy {
namespace {

template <class Kind, class Weight, class Activation>
struct Kernels {
    using OfCall = Call<Weight, Activation, float>;
    using Kernel = void (*)(OfCall);

    static Kernel of(Path path) {
        switch (path) {
            case Path::cluster: return cluster_kernel<Kind, Weight, Activation, float>;
            case Path::grid: return grid_kernel<Kind, Weight, Activation, float>;
            default: return block_kernel<Kind, Weight, Activation, float>;
        }
    }

    static const void* address(Path path) { return reinterpret_cast<const void*>(of(path)); }

    // Allows the kernel all the shared memory a block can have, whatever this plan needs: the limit belongs to the
    // kernel, not to the plan, and a plan for a smaller D must not lower it for a larger one.
    static cudaError_t permit(Path path, std::size_t shared_bytes) {
        return cudaFuncSetAttribute(address(path), cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    }

    // How many clusters can be resident at once. 0 if the kernel is PTX for a GPU without clusters, compiled by the
    // driver for one with them, or on a GPU partition with too few adjacent multiprocessors.
    static cudaError_t clusters(const Needs& needs, const Device& device, int& count) {
        count = 0;
        cudaFuncAttributes compiled{};
        cudaError_t error = cudaFuncGetAttributes(&compiled, address(Path::cluster));
        if (error != cudaSuccess || compiled.ptxVersion < 90 || needs.cluster > device.shared_bytes) return error;
        if ((error = permit(Path::cluster, device.shared_bytes)) != cudaSuccess) return error;
        cudaLaunchAttribute attribute{};
        const cudaLaunchConfig_t config =
            configured(Path::cluster, needs.cluster_blocks, needs.cluster_blocks, needs.cluster, nullptr, attribute);
        error = cudaOccupancyMaxActiveClusters(&count, address(Path::cluster), &config);
        if (error != cudaErrorInvalidClusterSize) return error;
        count = 0;
        cudaGetLastError();  // clear the error: another path runs instead
        return cudaSuccess;
    }

    // How many blocks of a grid can be resident at once, as a cooperative launch requires.
    static cudaError_t resident(const Needs& needs, const Device& device, int& blocks) {
        blocks = 0;
        const std::size_t bytes = needs.grid <= device.shared_bytes ? needs.grid : needs.grid_off_chip;
        cudaError_t error = permit(Path::grid, device.shared_bytes);
        if (error != cudaSuccess || bytes > device.shared_bytes) return error;
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, address(Path::grid), kThreads, bytes);
        blocks *= device.multiprocessors;
        return error;
    }

    // attribute: storage that the returned configuration points to.
    static cudaLaunchConfig_t configured(Path path, int blocks, int members, std::size_t shared_bytes,
                                         cudaStream_t stream, cudaLaunchAttribute& attribute) {
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(kThreads);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = path == Path::block ? 0 : 1;
        if (path == Path::cluster) {
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim.x = members;
            attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        } else if (path == Path::grid) {
            attribute.id = cudaLaunchAttributeCooperative;
            attribute.val.cooperative = 1;
        }
        return config;
    }

    static cudaError_t launch(const Plan& plan, Sizes sizes, float sharpness, float epsilon, const Tensors& tensors,
                              void* workspace, cudaStream_t stream) {
        const auto in = [&](int k) { return static_cast<const Activation*>(tensors.in[k]); };
        const auto out = [&](int k) { return static_cast<Activation*>(tensors.out[k]); };
        OfCall call{};
        call.X = in(0), call.H0 = in(1), call.u = in(4), call.v = in(5), call.b = in(6), call.C0 = in(7);
        call.U = static_cast<const Weight*>(tensors.in[2]), call.V = static_cast<const Weight*>(tensors.in[3]);
        call.Y = out(0), call.H = out(1), call.M = out(2), call.C = out(3);
        call.T = sizes.T, call.B = sizes.B, call.D = sizes.D;
        call.sharpness = sharpness, call.epsilon = epsilon;
        call.reach = float(std::log((1 - double(epsilon)) / epsilon) / sharpness);
        if ((reinterpret_cast<std::uintptr_t>(call.U) | reinterpret_cast<std::uintptr_t>(call.V)) % 16 != 0)
            throw std::invalid_argument("U and V must start at a multiple of 16 bytes");
        call.slices = slices_of(sizes.D), call.tile = tile_of<Kind>(sizes.D, chunk_of(plan.path));
        call.members = plan.members, call.alone = plan.alone, call.on_chip = plan.on_chip;
        call.workspace = static_cast<float*>(workspace);

        cudaLaunchAttribute attribute{};
        const cudaLaunchConfig_t config =
            configured(plan.path, plan.blocks, plan.members, plan.shared_bytes, stream, attribute);
        return cudaLaunchKernelEx(&config, of(plan.path), call);
    }
};

// Calls use(kernels) with the kernels of a unit for these types.
template <class Kind, class Use>
auto with_types(Types types, const Use& use) {
    switch (types) {
        case Types::half_weights: return use(Kernels<Kind, Half, float>());
        case Types::half: return use(Kernels<Kind, Half, Half>());
        default: return use(Kernels<Kind, float, float>());
    }
}

template <class Use>
auto with_kernels(Unit unit, Types types, const Use& use) {
    return with_unit(unit, [&](auto kind) { return with_types<decltype(kind)>(types, use); });
}

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::string message = std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion)
        message += "; the plugin was compiled for other GPUs: run `vcdeploy plugin build`";
    throw std::runtime_error(message);
}

constexpr const char* kUnreadable = "the GPU's properties can't be read";
constexpr const char* kUnlaunchable = "the kernel can't be launched on this GPU";

std::size_t weight_bytes(Types types) { return types == Types::f32 ? 4 : 2; }

// What the current GPU can do for this layer.
Device current(Unit unit, Types types, int D, int rooms) {
    int device = 0;
    check(cudaGetDevice(&device), "no GPU to run on");
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        check(cudaDeviceGetAttribute(&value, which, device), kUnreadable);
        return value;
    };
    const Needs needs = needs_of(unit, D);
    Device here{attribute(cudaDevAttrMultiProcessorCount),
                std::size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)), 0, 0, rooms};
    if (attribute(cudaDevAttrCooperativeLaunch) != 0)
        check(with_kernels(unit, types, [&](auto kernels) { return kernels.resident(needs, here, here.grid_blocks); }),
              kUnlaunchable);
    if (attribute(cudaDevAttrClusterLaunch) != 0)
        check(with_kernels(unit, types, [&](auto kernels) { return kernels.clusters(needs, here, here.clusters); }),
              kUnlaunchable);
    return here;
}

}  // namespace

int rooms_needed(Unit unit, int D, Path wanted) {
    int device = 0, shared_bytes = 0, multiprocessors = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return kMostRooms;
    check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), kUnreadable);
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), kUnreadable);
    const bool fits = needs_of(unit, D).grid <= std::size_t(shared_bytes) && wanted != Path::grid_off_chip;
    return fits ? 0 : std::min(multiprocessors, kMostRooms);
}

std::size_t workspace_bytes(Unit unit, int B, int D, int rooms) { return needed_workspace(unit, B, D, rooms); }

std::vector<Path> runnable(Unit unit, Types types, int B, int D, int rooms) {
    int device = 0;
    std::vector<Path> paths;
    if (cudaGetDevice(&device) != cudaSuccess) return paths;
    const Device here = current(unit, types, D, rooms);
    for (const Path path : {Path::block, Path::cluster, Path::grid, Path::grid_together}) try {
            plan(unit, weight_bytes(types), B, D, needs_of(unit, D), here, path);
            paths.push_back(path);
        } catch (const std::invalid_argument&) {  // can't run here
        }
    return paths;
}

Plan prepared(Unit unit, Types types, int B, int D, Path wanted, int rooms) {
    const Device here = current(unit, types, D, rooms);
    const Plan found = plan(unit, weight_bytes(types), B, D, needs_of(unit, D), here, wanted);
    check(with_kernels(unit, types, [&](auto kernels) { return kernels.permit(found.path, here.shared_bytes); }),
          kUnlaunchable);
    return found;
}

cudaError_t launch(Unit unit, Types types, const Plan& plan, Sizes sizes, float sharpness, float epsilon,
                   const Tensors& tensors, void* workspace, cudaStream_t stream) {
    if (sizes.T > 0 && sizes.B > 0)
        return with_kernels(unit, types, [&](auto kernels) {
            return kernels.launch(plan, sizes, sharpness, epsilon, tensors, workspace, stream);
        });
    const std::size_t bytes = std::size_t(sizes.B) * sizes.D * (types == Types::half ? 2 : 4);
    cudaError_t error = cudaMemcpyAsync(tensors.out[1], tensors.in[1], bytes, cudaMemcpyDeviceToDevice, stream);
    if (error == cudaSuccess && spec_of(unit).has_cell())
        error = cudaMemcpyAsync(tensors.out[3], tensors.in[7], bytes, cudaMemcpyDeviceToDevice, stream);
    return error;
}

}  // namespace vcdeploy
