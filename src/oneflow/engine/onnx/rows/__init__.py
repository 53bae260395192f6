"""What ONNX makes of each op row; one file for each of ``oneflow.engine.ops``."""
