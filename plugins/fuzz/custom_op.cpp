// libFuzzer: the custom op of plugins/onnxruntime, through its C interface, with any settings, attributes and tensors.
//
// A tensor may have any rank and shape, and holds as many elements as its shape says, as a runtime ensures. A call
// returns a status or all outputs; calls from two threads give the same bits; other weights give what they would alone.
#include <thread>

#include "bytes.h"
#include "common/spec.h"
#include "runtime.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const vcdeploy::OrtApiBase* base);

namespace vcdeploy::fuzz {
namespace {

// Frees a status; whether there was one.
bool failed(OrtStatus* status) {
    const bool is_error = status != nullptr;
    if (is_error) require(!status->message.empty(), "an error says something");
    delete status;
    return is_error;
}

// A tensor of this shape, or now and then of another.
OrtValue tensor(Bytes& bytes, std::vector<std::int64_t> shape, float scale, bool wild) {
    OrtValue value;
    if (wild && bytes.number(0, 7) == 0) {
        const int what = bytes.number(0, 4);
        if (what == 0) shape.pop_back();
        if (what == 1) shape.push_back(bytes.number(0, 2));
        if (what == 2 && !shape.empty()) shape[bytes.number(0, 3) % shape.size()] = bytes.number(0, 3);
        if (what == 3) value.type = bytes.number(0, 20);
        if (what == 4 && shape.size() > 1) {  // a huge size next to a 0 takes no memory
            shape[0] = 0;
            shape.back() = bytes.one_of({std::int64_t{1} << 16, std::int64_t{1} << 31, std::int64_t{1} << 40,
                                         std::numeric_limits<std::int64_t>::max()});
        }
    }
    std::size_t count = 1;
    for (const std::int64_t each : shape) count = each == 0 ? 0 : count * static_cast<std::size_t>(each);
    for (const std::int64_t each : shape)
        if (each == 0) count = 0;
    value.shape = shape;
    value.data = bytes.numbers(count, scale, wild);
    return value;
}

struct Node {
    const OrtCustomOp& op;
    const OrtKernelInfo& info;
    void* kernel = nullptr;

    explicit Node(const OrtCustomOp& op, const OrtKernelInfo& info) : op(op), info(info) {
        const bool refused = failed(op.CreateKernelV2(&op, runtime().GetApi(kOrtApiVersion), &info, &kernel));
        require(refused == (kernel == nullptr), "a status or a kernel");
    }
    ~Node() {
        if (kernel) op.KernelDestroy(kernel);
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // The outputs; false if the call was refused.
    bool compute(const std::vector<OrtValue>& values, const std::vector<bool>& wanted,
                 std::vector<OrtValue>& outputs) const {
        OrtKernelContext context;
        for (const OrtValue& each : values) context.inputs.push_back(&each);
        context.wanted = wanted;
        context.outputs.resize(wanted.size());
        if (failed(op.KernelComputeV2(kernel, &context))) return false;
        outputs = context.outputs;
        return true;
    }
};

void require_same(const std::vector<OrtValue>& one, const std::vector<OrtValue>& other, const char* promise) {
    for (std::size_t i = 0; i < one.size(); ++i)
        require(one[i].shape == other[i].shape && same(one[i].data, other[i].data), promise);
}

void attack(Bytes bytes) {
    OrtSessionOptions options;
    if (bytes.flag()) options.entries["vcdeploy.threads"] = bytes.one_of({"1", "1", "2", "0", "257", "x", "", "1 "});
    if (bytes.flag())
        options.entries["vcdeploy.precision"] =
            bytes.number(0, 6) ? kPrecisions[bytes.number(0, kPrecisionCount - 1)].name : bytes.one_of({"", "f64"});
    if (failed(RegisterCustomOps(&options, &runtime()))) return;
    require(options.domain && options.domain->ops.size() == 3, "three ops");
    const int number = bytes.number(0, 2);
    const OrtCustomOp& op = *options.domain->ops[number];

    const bool wild = bytes.flag(), constant = bytes.flag();
    const int T = bytes.number(0, 4), B = bytes.number(0, 3), gates = kUnits[number].gates;
    const int D = bytes.one_of({1, 2, 7, 16, 17, 33, 64, 65});
    const float scale = bytes.one_of({0.3f, 1.0f, 30.0f, 1e18f});
    const std::vector<std::vector<std::int64_t>> shapes{{T, B, D}, {B, D}, {gates * D, D}, {gates * D, D}, {D},
                                                        {D},       {1},    {B, D}};
    const auto tensors = [&] {
        std::vector<OrtValue> values;
        for (std::size_t i = 0; i < op.GetInputTypeCount(&op); ++i)
            values.push_back(tensor(bytes, shapes[i], scale, wild));
        return values;
    };
    const std::vector<OrtValue> first = tensors(), second = tensors();

    OrtKernelInfo info;
    if (bytes.number(0, 15) != 15) info.floats["sharpness"] = bytes.flag() ? 1.0f : bytes.raw<float>();
    if (bytes.number(0, 15) != 15) info.floats["epsilon"] = bytes.flag() ? 1e-3f : bytes.raw<float>();
    if (bytes.number(0, 3) == 3)
        info.integers["activation_levels"] = bytes.flag() ? bytes.one_of({1 << 14, 127}) : bytes.raw<std::int64_t>();
    if (constant)
        for (std::size_t i = 2; i < 7; ++i)
            if (!wild || bytes.number(0, 15) != 15) info.constants[i] = &first[i];
    const Node node(op, info);
    if (!node.kernel) return;
    std::vector<bool> wanted(op.GetOutputTypeCount(&op), true);
    if (bytes.number(0, 3) == 3) wanted[bytes.number(0, 3) % wanted.size()] = false;

    std::vector<OrtValue> outputs, again, others, alone;
    const bool ran = node.compute(first, wanted, outputs);
    const bool ran_others = node.compute(second, wanted, others);  // other weights, unless they are constant
    require(node.compute(first, wanted, again) == ran, "the same call is refused or runs again");
    if (ran) require_same(outputs, again, "the same call gives the same bits again");
    if (ran_others && !constant) {
        const Node fresh(op, info);
        require(fresh.compute(second, wanted, alone), "what ran after other weights runs alone");
        require_same(others, alone, "earlier weights leave no trace");
    }
    if (bytes.number(0, 15) == 15) {
        std::vector<OrtValue> here, there;
        std::thread other([&] { node.compute(second, wanted, there); });
        const bool ran_here = node.compute(first, wanted, here);
        other.join();
        if (ran)
            require(ran_here, "a call runs beside another"), require_same(outputs, here, "and gives the same bits");
        if (ran_others) require_same(others, there, "in both threads");
    }
}

}  // namespace
}  // namespace vcdeploy::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    vcdeploy::fuzz::attack({data, size});
    return 0;
}
