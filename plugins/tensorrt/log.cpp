// Where the logger is, as setLoggerFinder said.
#include "log.h"

#include <atomic>
#include <cstdio>

namespace vcdeploy {
namespace {

std::atomic<nvinfer1::ILoggerFinder*> the_finder{nullptr};

}  // namespace

void set_logger_finder(nvinfer1::ILoggerFinder* finder) { the_finder = finder; }

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
