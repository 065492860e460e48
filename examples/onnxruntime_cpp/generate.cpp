// Generate symbols from C++ with ONNX Runtime and the custom op of vcdeploy, whose kernels skip.
//
//   vcdeploy export english -o model.onnx
//   python -c "import vcdeploy.custom_ops as c; print(c.library())"       # the path of the custom op
//   build/example/generate model.onnx libvcdeploy_onnxruntime.so 40 16 28 25   # length, then the ids to start from
//
// To build it, see CMakeLists.txt. Decoding is greedy; prints each generated id with the m of its step.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

namespace {

void generate(const char* model, const char* library, int length, std::vector<std::int64_t> tokens) {
  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "vcdeploy");
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  options.RegisterCustomOpsLibrary(library);  // without this line the file still runs, densely
  Ort::Session session(env, model, options);

  // state is [S, B, D]; S and D are fixed in the file, B is 1 here.
  std::vector<std::int64_t> shape = session.GetInputTypeInfo(1).GetTensorTypeAndShapeInfo().GetShape();
  shape[1] = 1;
  std::vector<float> state(shape[0] * shape[2], 0.0f);

  const Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const char* inputs[] = {"tokens", "state"};
  const char* outputs[] = {"logits", "state_out", "compute"};
  for (int step = 0; step < length; ++step) {
    const std::int64_t tokens_shape[] = {static_cast<std::int64_t>(tokens.size()), 1};  // [T, B]
    std::vector<Ort::Value> values;
    values.push_back(Ort::Value::CreateTensor<std::int64_t>(memory, tokens.data(), tokens.size(), tokens_shape, 2));
    values.push_back(Ort::Value::CreateTensor<float>(memory, state.data(), state.size(), shape.data(), shape.size()));
    std::vector<Ort::Value> results = session.Run(Ort::RunOptions{}, inputs, values.data(), 2, outputs, 3);

    const std::int64_t vocab = results[0].GetTensorTypeAndShapeInfo().GetShape()[2];
    const float* logits = results[0].GetTensorData<float>() + (tokens.size() - 1) * vocab;  // of the last token
    const std::int64_t next = std::max_element(logits, logits + vocab) - logits;
    const std::vector<std::int64_t> spent = results[2].GetTensorTypeAndShapeInfo().GetShape();  // [T, B, layers]
    const float m = results[2].GetTensorData<float>()[(spent[0] - 1) * spent[2]];
    std::printf("%lld %.4f\n", static_cast<long long>(next), m);

    std::copy_n(results[1].GetTensorData<float>(), state.size(), state.begin());
    tokens.assign(1, next);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) {
    std::fprintf(stderr, "usage: %s MODEL LIBRARY LENGTH ID...\n", words[0]);
    return 2;
  }
  std::vector<std::int64_t> tokens;
  for (int i = 4; i < count; ++i) tokens.push_back(std::atoll(words[i]));
  try {
    generate(words[1], words[2], std::atoi(words[3]), std::move(tokens));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
