"""ONNX export and the check against ONNX Runtime."""
