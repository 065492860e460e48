// Compiles every kernel: three units, three choices of types, three paths.
#include "launch.h"

#include <cstdint>

#include "needs.cuh"

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

    static cudaError_t prepare(const Plan& plan, int multiprocessors) {
        const auto kernel = reinterpret_cast<const void*>(of(plan.path));
        cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(plan.shared_bytes));
        if (error != cudaSuccess || plan.path != Path::grid) return error;
        int blocks = 0;  // of a multiprocessor: all blocks of the grid have to be there at once
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, plan.shared_bytes);
        if (error == cudaSuccess && blocks * multiprocessors < plan.blocks) error = cudaErrorCooperativeLaunchTooLarge;
        return error;
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
        constexpr int columns = 16 / sizeof(Weight);
        const auto place = reinterpret_cast<std::uintptr_t>(call.U) | reinterpret_cast<std::uintptr_t>(call.V);
        call.vector = sizes.D % columns == 0 && place % 16 == 0 ? columns : 1;
        call.members = plan.members, call.alone = plan.alone, call.on_chip = plan.on_chip;
        call.workspace = static_cast<float*>(workspace);

        cudaLaunchAttribute attribute{};
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(plan.blocks);
        config.blockDim = dim3(kThreads);
        config.dynamicSmemBytes = plan.shared_bytes;
        config.stream = stream;
        config.attrs = &attribute;
        if (plan.path == Path::cluster) {
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim.x = plan.members;
            attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
            config.numAttrs = 1;
        } else if (plan.path == Path::grid) {
            attribute.id = cudaLaunchAttributeCooperative;
            attribute.val.cooperative = 1;
            config.numAttrs = 1;
        }
        return cudaLaunchKernelEx(&config, of(plan.path), call);
    }
};

// What `use` does with the kernels of a unit and its types.
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
    switch (unit) {
        case Unit::vcrnn: return with_types<VCRNN>(types, use);
        case Unit::vcgru: return with_types<VCGRU>(types, use);
        default: return with_types<VCLSTM>(types, use);
    }
}

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess)
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                                 ")");
}

}  // namespace

std::size_t workspace_bytes(Unit unit, int B, int D) { return needed_workspace(unit, B, D); }

Plan prepared(Unit unit, Types types, int B, int D, Path wanted) {
    int device = 0;
    check(cudaGetDevice(&device), "no GPU to run on");
    const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        check(cudaDeviceGetAttribute(&value, which, device), "the GPU's properties can't be read");
        return value;
    };
    const Device here{attribute(cudaDevAttrComputeCapabilityMajor), attribute(cudaDevAttrMultiProcessorCount),
                      std::size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                      attribute(cudaDevAttrCooperativeLaunch) != 0};
    const std::size_t weight_bytes = types == Types::f32 ? 4 : 2;
    const Plan found = plan(unit, weight_bytes, B, D, needs_of(unit, D), here, wanted);
    check(with_kernels(unit, types, [&](auto kernels) { return kernels.prepare(found, here.multiprocessors); }),
          "the kernel can't be launched on this GPU");
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
    if (error == cudaSuccess && unit == Unit::vclstm)
        error = cudaMemcpyAsync(tensors.out[3], tensors.in[7], bytes, cudaMemcpyDeviceToDevice, stream);
    return error;
}

}  // namespace vcdeploy
