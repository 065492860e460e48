// Errors across ONNX Runtime's C interface: an OrtStatus becomes an exception, and an exception an OrtStatus.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "ort_c_api.h"

namespace vcdeploy {

// Throws the error of a call to the runtime; a null status is success.
inline void require(const OrtApi& api, OrtStatus* status) {
    if (status == nullptr) return;
    const std::string message = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw std::runtime_error(message);
}

// Runs `work` and converts any exception to a status whose message starts with `who`. Never throws.
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
        return failed(ORT_FAIL, "unknown error");
    }
}

}  // namespace vcdeploy
