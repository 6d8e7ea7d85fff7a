"""The reference runtime's kernels beside onnx.reference, onnxruntime and a plain copy."""
