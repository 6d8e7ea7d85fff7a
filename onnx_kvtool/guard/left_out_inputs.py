"""Operators whose kernel reads an optional input at the end although the node has none."""

from __future__ import annotations

import onnx

from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.model_io.forms import every_node
from onnx_kvtool.model_io.protobuf import DecodeError

FAULT = Fault(
    library="onnxruntime",
    seen="1.24 to 1.32",
    what="ends the process where it loads a QLinearSigmoid or QLinearLeakyRelu without the fifth"
    " input, `Y_zero_point`, which its schema calls optional",
    instead="gives such a node an empty input in its place",
)

_OPERATORS = ("QLinearSigmoid", "QLinearLeakyRelu")
_INPUTS = 5


def with_all_inputs(model: bytes) -> bytes:
    """Return a model whose nodes of these operators have all inputs, absent ones by an empty name.

    The constructor of the kernels asks whether the fifth input exists and not how many there are
    (`InputDefs()[4]->Exists()` in `contrib_ops/cpu/quantization/qlinear_lookup_table.cc`).

    Args:
        model: The serialised model; one without these operators, or that is no model at all, is
            returned as it is.
    """
    if not any(op.encode() in model for op in _OPERATORS):
        return model
    try:
        message = onnx.ModelProto.FromString(model)
    except DecodeError:
        return model  # for the runtime to complain about
    for node in every_node(message):
        if node.op_type in _OPERATORS and node.domain == "com.microsoft":
            node.input.extend([""] * (_INPUTS - len(node.input)))
    return bytes(message.SerializeToString())
