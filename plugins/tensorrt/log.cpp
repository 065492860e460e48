// Where the logger is, as setLoggerFinder said.
#include "log.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

namespace vcdeploy {
namespace {

std::atomic<nvinfer1::ILoggerFinder*> the_finder{nullptr};

// Whether the finder is one of the headers' TensorRT. With version 11 the class got other virtual functions, so that one
// of another major can't be called; the plugin's own interfaces are the same in both. The library that made the finder
// tells its version: 1e4 a major.
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
    } catch (...) {  // no memory for the message
    }
}

}  // namespace vcdeploy
