// Messages to TensorRT's own log, where a logger was found that can be called; else to the standard error.
#pragma once

#include <NvInferRuntime.h>

#include <string>

namespace vcdeploy {

void set_logger_finder(nvinfer1::ILoggerFinder* finder);
void log_error(const std::string& message) noexcept;

}  // namespace vcdeploy
