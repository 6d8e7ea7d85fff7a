"""The standard forms of operators of onnxruntime: each operator written with those of ONNX."""
