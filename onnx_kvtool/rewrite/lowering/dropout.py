"""Dropout-12, for opset 11."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast, where
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import element_type
from onnx_kvtool.rewrite.lowering.resize_tables import constant_floats

__all__ = ["lower_dropout_12"]

_BOOL, _FLOAT = ir.DataType.BOOL, ir.DataType.FLOAT


def lower_dropout_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write a Dropout that drops nothing as an Identity with a mask of true.

    In training the elements are kept whose random number is not below the ratio:

        y = x / (1 - ratio) where RandomUniformLike(x) >= ratio, else 0

    The ratio counts as 0 where `training_mode` turns out to be false. Numbers are drawn anew in
    each run, from the seed if there is one; nobody says which numbers a seed stands for.
    """
    view = NodeView(node, context.opset_of(node))
    data, training = view.required("data"), view.input("training_mode")
    known = context.folder.integers(training)
    ratio = constant_floats(view.input("ratio"))
    drops = view.input("ratio") is None or ratio is None or bool(ratio.any())
    is_masked = len(node.outputs) > 1 and bool(node.outputs[1].name)
    if drops and training is not None and (known is None or known.any()):
        result, mask = _dropped(em, view, data, training if known is None else None)
        return Replacement((result, mask if is_masked else None)[: len(node.outputs)])
    kept = em.op("Identity", data, dtype=data.dtype or ir.DataType.UNDEFINED)
    if not is_masked:
        return Replacement((kept, None)[: len(node.outputs)])
    true = ir.tensor(np.ones(1, np.bool_))
    mask = em.op(
        "ConstantOfShape",
        em.op("Shape", data),
        attributes={"value": true},
        dtype=_BOOL,
        hint="mask",
    )
    return Replacement((kept, mask))


def _dropped(
    em: Emitter, view: NodeView, data: ir.Value, training: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Return what is left of the data, and which elements are kept.

    Args:
        em: Where to build.
        view: The node.
        data: The data.
        training: Whether anything is dropped; None for yes.
    """
    dtype = element_type(data, "Dropout in training", 12)
    wide = ir.DataType.DOUBLE if dtype == ir.DataType.DOUBLE else _FLOAT
    given = view.input("ratio")
    one = em.constant(np.array(1, wide.numpy()), "one")
    if given is None:
        ratio = em.constant(np.array(0.5, wide.numpy()), "ratio")
    else:
        ratio = cast(em, given, wide)
    if training is not None:
        ratio = em.op("Mul", ratio, cast(em, training, wide), dtype=wide, hint="ratio")
    seed, attributes = view.attribute("seed"), dict[str, AttributeValue](dtype=_FLOAT.value)
    if isinstance(seed, int):
        attributes["seed"] = float(seed)
    drawn = em.op("RandomUniformLike", data, attributes=attributes, dtype=_FLOAT, hint="drawn")
    below = em.op("Less", cast(em, drawn, wide), ratio, dtype=_BOOL, hint="is_dropped")
    mask = em.op("Not", below, dtype=_BOOL, hint="mask")
    left = em.op("Sub", one, ratio, dtype=wide)
    scaled = em.op("Div", cast(em, data, wide), left, dtype=wide, hint="scaled")
    zero = em.constant(np.array(0, wide.numpy()), "zero")
    return cast(em, where(em, mask, scaled, zero), dtype), mask
