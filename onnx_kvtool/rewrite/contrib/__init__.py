"""Rules that write operators of onnxruntime with operators of ONNX, one file for each family."""
