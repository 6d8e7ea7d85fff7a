"""Products of signed codes as those of unsigned ones, for releases without a kernel for the first.

The remedy of `other-code-types`. What counts is how far a code is from its zero point, and that
both are 128 higher changes nothing: every result keeps its bits, padding is the zero point.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.conditions.operators import codes_of
from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import cast

__all__ = ["unsigned"]

_D = ir.DataType
_SHIFT = 128


def unsigned(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a product of quantised numbers with uint8 in the place of int8; None for other types."""
    inputs = list(node.inputs)
    result = node.outputs[0].dtype
    for codes in codes_of(node, opset):
        if codes.dtype not in (_D.INT8, _D.UINT8):
            return None
        if codes.index is None:
            result = codes.dtype
        if codes.dtype == _D.UINT8:
            continue
        inputs += [None] * (codes.at + 1 - len(inputs))
        inputs[codes.at] = _raised(em, inputs[codes.at])
        if codes.index is not None:
            inputs[codes.index] = _raised(em, inputs[codes.index])
    attributes = {name: given.value for name, given in node.attributes.items()}
    given = _D.UINT8 if result == _D.INT8 else result or _D.UNDEFINED
    output = em.op(node.op_type, *inputs, attributes=attributes, dtype=given)
    if result == _D.INT8:
        output = _moved(em, output, -_SHIFT, _D.INT8)
    return Replacement((output,), folds=False)


def _raised(em: Emitter, value: ir.Value | None) -> ir.Value:
    """Return int8 as uint8, 128 higher; what is left out is a zero point of 0."""
    if value is None:
        return em.constant(np.array(_SHIFT, np.uint8), "zero_point")
    tensor = None if value.is_graph_input() else const_tensor(value)
    if tensor is None:
        return _moved(em, value, _SHIFT, _D.UINT8)

    def build() -> ir.TensorProtocol:
        def codes() -> ir.TensorProtocol:
            return ir.Tensor((tensor.numpy().astype(np.int16) + _SHIFT).astype(np.uint8))

        return ir.LazyTensor(
            codes, dtype=_D.UINT8, shape=ir.Shape(tensor.shape.numpy()), name=value.name
        )

    return em.weight(("unsigned", value), build, f"{value.name}/unsigned")


def _moved(em: Emitter, value: ir.Value, by: int, dtype: ir.DataType) -> ir.Value:
    wide = cast(em, value, _D.INT32)
    number = em.constant(np.array(by, np.int32), "shift")
    return cast(em, em.op("Add", wide, number, dtype=_D.INT32, hint="shifted"), dtype)
