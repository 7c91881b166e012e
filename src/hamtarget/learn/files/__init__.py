"""Encoders as files: safetensors, ONNX, and the networks that come with the package."""
