"""What is wrong with a model message before onnx_ir sees it."""
