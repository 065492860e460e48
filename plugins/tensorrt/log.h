// Logs errors to TensorRT's logger if a compatible one was found, otherwise to stderr.
#pragma once

#include <NvInferRuntime.h>

#include <string>

namespace vcdeploy {

void set_logger_finder(nvinfer1::ILoggerFinder* finder);
void log_error(const std::string& message) noexcept;

}  // namespace vcdeploy
