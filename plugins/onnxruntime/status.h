// Errors on both sides of ONNX Runtime's C interface: its OrtStatus becomes an exception, an exception an OrtStatus.
#pragma once

#include <onnxruntime_c_api.h>

#include <exception>
#include <stdexcept>
#include <string>

namespace vcdeploy {

// Throws what a call of the runtime came to, unless it came to nothing.
inline void require(const OrtApi& api, OrtStatus* status) {
    if (status == nullptr) return;
    const std::string message = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw std::runtime_error(message);
}

// Runs `work`; what it throws comes back as a status that says `who` failed. No exception leaves it.
template <class Work>
OrtStatus* guarded(const OrtApi& api, const char* who, const Work& work) noexcept {
    const auto failed = [&](OrtErrorCode code, const char* what) noexcept -> OrtStatus* {
        try {
            return api.CreateStatus(code, (std::string(who) + ": " + what).c_str());
        } catch (...) {
            return api.CreateStatus(code, who);
        }
    };
    try {
        work();
        return nullptr;
    } catch (const std::invalid_argument& error) {
        return failed(ORT_INVALID_ARGUMENT, error.what());
    } catch (const std::bad_alloc&) {
        return failed(ORT_FAIL, "out of memory");
    } catch (const std::exception& error) {
        return failed(ORT_FAIL, error.what());
    } catch (...) {
        return failed(ORT_FAIL, "an unknown failure");
    }
}

}  // namespace vcdeploy
