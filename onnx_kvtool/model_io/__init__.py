"""Reading a model, judging it, carrying what onnx_ir loses, and writing it whole."""
