"""The model file (ONNX): names, metadata, weights, precision; reading and building one. No PyTorch, no runtime."""
