"""Shape rules, one per operator that onnx has none for or loses symbols on."""
