"""Writing the operators of onnxruntime in a model with operators of ONNX."""
