// Finds the logger through the finder set by setLoggerFinder.
#include "log.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

namespace vcdeploy {
namespace {

std::atomic<nvinfer1::ILoggerFinder*> the_finder{nullptr};

// Whether the finder belongs to the TensorRT major version of our headers. Version 11 changed the virtual functions of
// this class, so that a finder of another major version can't be called; the plugin's own interfaces are the same in
// both. The library that created the finder reports its version as 10000 * major + …
bool of_these_headers(nvinfer1::ILoggerFinder* finder) {
    Dl_info origin{};
    const void* table = *reinterpret_cast<void* const*>(finder);
    if (!dladdr(table, &origin) || !origin.dli_fname) return true;
    void* library = dlopen(origin.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) library = dlopen(nullptr, RTLD_LAZY);  // the program itself
    const auto version = reinterpret_cast<int32_t (*)()>(dlsym(library, "getInferLibVersion"));
    const bool same = !version || version() / 10000 == NV_TENSORRT_MAJOR;
    dlclose(library);
    return same;
}

}  // namespace

void set_logger_finder(nvinfer1::ILoggerFinder* finder) {
    the_finder = finder && of_these_headers(finder) ? finder : nullptr;
}

void log_error(const std::string& message) noexcept {
    try {
        const std::string whole = "vcdeploy: " + message;
        nvinfer1::ILoggerFinder* finder = the_finder;
        if (nvinfer1::ILogger* logger = finder ? finder->findLogger() : nullptr)
            logger->log(nvinfer1::ILogger::Severity::kERROR, whole.c_str());
        else
            std::fprintf(stderr, "%s\n", whole.c_str());
    } catch (...) {  // out of memory for the message
    }
}

}  // namespace vcdeploy
