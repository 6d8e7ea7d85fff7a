"""Protobuf messages made of onnx_ir, and what only they can hold or tell."""
