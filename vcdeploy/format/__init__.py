"""Reading and building model files (ONNX): names, metadata, weights, precision. Uses no PyTorch and no runtime."""
