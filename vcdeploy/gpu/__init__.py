"""Everything for NVIDIA GPUs: CUDA, the TensorRT plugin, engines and their bundles, ONNX Runtime's GPU providers.

Imported only for `--trt`, `--device cuda`, `gpu-check` and the GPU backends. Not run on a GPU yet.
"""
