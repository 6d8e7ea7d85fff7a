"""Operators whose rule in onnx takes a size without number for zero."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.guard.fault import Fault

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="refuses a StringNormalizer whose input has a size without number, which it takes for 0",
    instead="does not repeat that refusal",
)


def takes_names_for_zero(node: ir.Node) -> bool:
    """Return whether onnx refuses a node because it takes a size without number for 0."""
    if node.op_type != "StringNormalizer" or node.domain:
        return False
    shape = None if not node.inputs or node.inputs[0] is None else node.inputs[0].shape
    return shape is not None and not all(isinstance(dim, int) for dim in shape)
