// RegisterCustomOps, the one function that the library shows: ONNX Runtime calls it for each session's options.
//
// The library asks for one version of the runtime's interface, the oldest it needs, which every newer runtime offers
// too. It keeps to the C interface: what the C++ wrappers call changes with the version of the header.
#include <onnxruntime_c_api.h>

#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "custom_op.h"
#include "status.h"

#ifdef _WIN32
#define VCDEPLOY_VISIBLE __declspec(dllexport)
#else
#define VCDEPLOY_VISIBLE __attribute__((visibility("default")))
#endif

namespace vcdeploy {
namespace {

constexpr int kMostThreads = 256;

// The ops of all sessions with the same settings.
class Domain {
  public:
    Domain(const OrtApi& api, Settings settings)
        : ops_{CustomOp(Unit::vcrnn, settings), CustomOp(Unit::vcgru, settings), CustomOp(Unit::vclstm, settings)},
          domain_(made(api), api.ReleaseCustomOpDomain) {
        for (const CustomOp& op : ops_) require(api, api.CustomOpDomain_Add(domain_.get(), &op));
    }

    OrtCustomOpDomain* get() { return domain_.get(); }

  private:
    static OrtCustomOpDomain* made(const OrtApi& api) {
        OrtCustomOpDomain* domain = nullptr;
        require(api, api.CreateCustomOpDomain("vcdeploy", &domain));
        return domain;
    }

    const std::array<CustomOp, 3> ops_;
    std::unique_ptr<OrtCustomOpDomain, decltype(OrtApi::ReleaseCustomOpDomain)> domain_;
};

// Sessions hold on to their domain, and nothing tells when the last of them has gone: it stays with the library.
Domain& domain_of(const OrtApi& api, Settings settings) {
    static std::mutex busy;
    static std::map<std::pair<const OrtApi*, Settings>, std::unique_ptr<Domain>> domains;
    const std::lock_guard lock(busy);
    std::unique_ptr<Domain>& found = domains[{&api, settings}];
    if (!found) found = std::make_unique<Domain>(api, settings);
    return *found;
}

// A configuration entry of the session's options; empty where it was not set.
std::string entry(const OrtApi& api, const OrtSessionOptions* options, const char* key) {
    int is_set = 0;
    require(api, api.HasSessionConfigEntry(options, key, &is_set));
    if (!is_set) return "";
    std::size_t size = 0;
    require(api, api.GetSessionConfigEntry(options, key, nullptr, &size));
    std::string value(size, '\0');
    require(api, api.GetSessionConfigEntry(options, key, value.data(), &size));
    value.resize(size > 0 ? size - 1 : 0);  // without its terminating zero
    return value;
}

Settings settings_of(const OrtApi& api, const OrtSessionOptions* options) {
    Settings settings;
    if (const std::string threads = entry(api, options, "vcdeploy.threads"); !threads.empty()) {
        const char* end = threads.data() + threads.size();
        const auto read = std::from_chars(threads.data(), end, settings.threads);
        if (read.ec != std::errc{} || read.ptr != end || settings.threads < 1 || settings.threads > kMostThreads)
            throw std::invalid_argument("vcdeploy.threads must be 1 to " + std::to_string(kMostThreads) + ", not '" +
                                        threads + "'");
    }
    if (const std::string precision = entry(api, options, "vcdeploy.precision"); !precision.empty()) {
        const std::map<std::string, Precision> known{{"f32", Precision::f32},
                                                     {"f16", Precision::f16},
                                                     {"bf16", Precision::bf16},
                                                     {"int8", Precision::int8}};
        const auto found = known.find(precision);
        if (found == known.end())
            throw std::invalid_argument("vcdeploy.precision must be f32, f16, bf16 or int8, not '" + precision + "'");
        settings.precision = found->second;
    }
    return settings;
}

}  // namespace
}  // namespace vcdeploy

extern "C" VCDEPLOY_VISIBLE OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options,
                                                                      const OrtApiBase* base) noexcept {
    using namespace vcdeploy;
    const OrtApi* api = base->GetApi(VCDEPLOY_ORT_API);
    if (api == nullptr) {  // the first version can make a status, too
        const OrtApi& oldest = *base->GetApi(1);
        return guarded(oldest, "vcdeploy", [base] {
            throw std::runtime_error("its ops need ONNX Runtime 1." + std::to_string(VCDEPLOY_ORT_API) +
                                     " or newer, and this is " + base->GetVersionString());
        });
    }
    return guarded(*api, "vcdeploy", [&] {
        require(*api, api->AddCustomOpDomain(options, domain_of(*api, settings_of(*api, options)).get()));
    });
}
