"""What each operator is: its versions, defaults, axis rules and legality, from `onnx.defs`."""
