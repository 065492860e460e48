// RegisterCustomOps, the only exported function: ONNX Runtime calls it for each session's options.
//
// The library asks for one version of the C interface, the oldest it supports; every newer runtime offers it too.
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "custom_op.h"
#include "ort_c_api.h"
#include "status.h"
#include "system/fork.h"

#ifdef _WIN32
#define VCDEPLOY_VISIBLE __declspec(dllexport)
#else
#define VCDEPLOY_VISIBLE __attribute__((visibility("default")))
#endif

namespace vcdeploy {
namespace {

constexpr int kMostThreads = 256;

// The ops that sessions with the same settings share.
class Domain {
  public:
    Domain(const OrtApi& api, Settings settings) : ops_(describe(settings)), domain_(create(api), Release{&api}) {
        for (const CustomOp& op : ops_) require(api, api.CustomOpDomain_Add(domain_.get(), &op));
    }

    OrtCustomOpDomain* get() { return domain_.get(); }

  private:
    struct Release {
        const OrtApi* api;
        void operator()(OrtCustomOpDomain* domain) const { api->ReleaseCustomOpDomain(domain); }
    };

    static OrtCustomOpDomain* create(const OrtApi& api) {
        OrtCustomOpDomain* domain = nullptr;
        require(api, api.CreateCustomOpDomain("vcdeploy", &domain));
        return domain;
    }

    static std::vector<CustomOp> describe(Settings settings) {
        std::vector<CustomOp> ops;
        for (int i = 0; i < kVariableCount; ++i) ops.emplace_back(kUnits[i].unit, settings);
        return ops;
    }

    const std::vector<CustomOp> ops_;  // ONNX Runtime keeps their addresses
    std::unique_ptr<OrtCustomOpDomain, Release> domain_;
};

// Domains are never released: sessions keep using them, and the library cannot know when the last session ends.
Domain& domain_of(const OrtApi& api, Settings settings) {
    static ForkMutex busy;
    static std::map<std::pair<const OrtApi*, Settings>, std::unique_ptr<Domain>> domains;
    const std::lock_guard lock(busy);
    std::unique_ptr<Domain>& found = domains[{&api, settings}];
    if (!found) found = std::make_unique<Domain>(api, settings);
    return *found;
}

// A setting: where it comes from, for errors, and its value.
struct Setting {
    const char* name;
    std::string value;  // empty if not set
};

// A configuration entry of the session's options or, for programs that cannot set one, an environment variable.
Setting setting(const OrtApi& api, const OrtSessionOptions* options, const char* key, const char* variable) {
    int is_set = 0;
    require(api, api.HasSessionConfigEntry(options, key, &is_set));
    if (!is_set) {
        const char* found = std::getenv(variable);
        return {variable, found ? found : ""};
    }
    std::size_t size = 0;
    require(api, api.GetSessionConfigEntry(options, key, nullptr, &size));
    std::string value(size, '\0');
    require(api, api.GetSessionConfigEntry(options, key, value.data(), &size));
    value.resize(size > 0 ? size - 1 : 0);  // without its terminating zero
    return {key, value};
}

Settings settings_of(const OrtApi& api, const OrtSessionOptions* options) {
    Settings settings;
    if (const auto [name, threads] = setting(api, options, "vcdeploy.threads", "VCDEPLOY_THREADS"); !threads.empty()) {
        const char* end = threads.data() + threads.size();
        const auto read = std::from_chars(threads.data(), end, settings.threads);
        if (read.ec != std::errc{} || read.ptr != end || settings.threads < 1 || settings.threads > kMostThreads)
            throw std::invalid_argument(std::string(name) + " must be 1 to " + std::to_string(kMostThreads) +
                                        ", not '" + threads + "'");
    }
    if (const auto [name, precision] = setting(api, options, "vcdeploy.precision", "VCDEPLOY_PRECISION");
        !precision.empty()) {
        std::string names;
        const PrecisionSpec* found = nullptr;
        for (const PrecisionSpec& each : kPrecisions) {
            if (precision == each.name) found = &each;
            const bool last = &each == std::end(kPrecisions) - 1;
            names += std::string(names.empty() ? "" : last ? " or " : ", ") + each.name;
        }
        if (!found) throw std::invalid_argument(std::string(name) + " must be " + names + ", not '" + precision + "'");
        settings.precision = found->precision;
    }
    return settings;
}

}  // namespace
}  // namespace vcdeploy

extern "C" VCDEPLOY_VISIBLE OrtStatus* VCDEPLOY_ORT_CALL RegisterCustomOps(OrtSessionOptions* options,
                                                                           const vcdeploy::OrtApiBase* base) noexcept {
    using namespace vcdeploy;
    const OrtApi* api = base->GetApi(kOrtApiVersion);
    if (api == nullptr) {  // version 1 can create a status as well
        const OrtApi& oldest = *base->GetApi(1);
        return guarded(oldest, "vcdeploy", [base] {
            throw std::runtime_error("its ops need ONNX Runtime 1." + std::to_string(kOrtApiVersion) +
                                     " or newer, and this is " + base->GetVersionString());
        });
    }
    return guarded(*api, "vcdeploy", [&] {
        require(*api, api->AddCustomOpDomain(options, domain_of(*api, settings_of(*api, options)).get()));
    });
}
