"""What changed between opsets for a node that comes to a later one.

Most changes of `ops.changes` matter both ways. Here stand the operators for which the way up is
another matter than the way down: a later version often takes all that the earlier one meant, and
sometimes reads the same text in another way. Found by reading the texts of all versions from
opset 7 to 28 (onnx 1.23), and running both forms where they are not clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.changes import CHANGES, PADS, Change, first_change
from onnx_kvtool.ops.schema import NEWEST, op_facts

if TYPE_CHECKING:
    from onnx_kvtool.ops.schema import OpFacts

__all__ = ["changed_by_upgrade", "further_outputs", "windows_begin_inside"]

_FNUZ = (ir.DataType.FLOAT8E4M3FNUZ.value, ir.DataType.FLOAT8E5M2FNUZ.value)


def further_outputs(node: ir.Node) -> bool:
    """Return whether any output but the first is there: one without a name is absent."""
    return any(output.name for output in node.outputs[1:])


def windows_begin_inside(node: ir.Node) -> bool:
    """Return whether no window of a pool begins in the padding behind the input.

    Only `ceil_mode` makes such windows, which count before opset 22 and are left out from 22 on.
    With explicit pads none begins there if `pad behind + stride <= window` on each axis, whatever
    the size; with `auto_pad` none does.
    """
    if _given(node, "ceil_mode") == 0:
        return True
    if any(attribute.is_ref() for attribute in node.attributes.values()):
        return False
    if _given(node, "auto_pad") != "NOTSET":
        return True
    kernel = _given(node, "kernel_shape", ())
    count = len(kernel)
    strides, dilations = (
        _given(node, "strides", [1] * count),
        _given(node, "dilations", [1] * count),
    )
    pads = _given(node, "pads", [0] * (2 * count))
    data = node.inputs[0] if node.inputs else None
    shape = None if data is None else data.shape
    if {len(strides), len(dilations), len(pads) / 2} != {count}:
        return False
    for axis in range(count):
        window = (kernel[axis] - 1) * dilations[axis] + 1
        before, behind, stride = pads[axis], pads[axis + count], strides[axis]
        if behind + stride <= window:
            continue
        size = shape[2 + axis] if shape is not None and len(shape) == 2 + count else None
        if not isinstance(size, int):
            return False
        if -(-(size + before + behind - window) // stride) * stride >= size + before:
            return False
    return True


def _given(node: ir.Node, name: str, otherwise: Any = None) -> Any:
    """Return an attribute of a pool, or its default, or what the text says in place of one."""
    attribute = node.attributes.get(name)
    if attribute is not None:
        return attribute.value
    facts = op_facts(node.op_type, NEWEST)
    declared = None if facts is None else facts.attributes.get(name)
    return otherwise if declared is None or declared.default is None else declared.default


def _no_larger(node: ir.Node) -> bool:
    """Whether the element type of a Clip has no finite number above the largest float32."""
    data = node.inputs[0] if node.inputs else None
    return data is not None and data.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _scalar_scale(node: ir.Node) -> bool:
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    return scale is not None and scale.shape is not None and len(scale.shape) == 0


def _no_int32(node: ir.Node) -> bool:
    data = node.inputs[0] if node.inputs else None
    return data is not None and data.dtype not in (None, ir.DataType.INT32)


def _sizes_are_given(node: ir.Node) -> bool:
    return len(node.inputs) > 1 and node.inputs[1] is not None


def _no_infinity_to_fnuz(node: ir.Node) -> bool:
    """Whether a Cast or CastLike certainly turns no infinity into a float8 without infinities."""
    saturate = node.attributes.get("saturate")
    if saturate is not None and not saturate.is_ref() and saturate.value == 0:
        return True
    data = node.inputs[0] if node.inputs else None
    if data is not None and data.dtype is not None and not data.dtype.is_floating_point():
        return True
    if node.op_type == "Cast":
        to = node.attributes.get("to")
        return to is not None and not to.is_ref() and to.value not in _FNUZ
    like = node.inputs[1] if len(node.inputs) > 1 else None
    return like is not None and like.dtype is not None and like.dtype.value not in _FNUZ


_POOL = Change(22, "a last window in the padding counts before opset 22", windows_begin_inside)
_SCALE = Change(13, "the scale is one number before opset 13", _scalar_scale)
_INFINITY = Change(
    24, "an infinity becomes NaN in a float8 of the FNUZ kind before opset 24", _no_infinity_to_fnuz
)

_MASK = "a mask of one column is for all keys before opset 24, and for the first from then on"


def _mask_broadcasts_not(node: ir.Node) -> bool:
    """Whether no mask of Attention has certainly one column where there may be more keys."""
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if mask is None or mask.shape is None or not len(mask.shape) or mask.shape[-1] != 1:
        return True
    key = node.inputs[1]
    rank = 0 if key is None or key.shape is None else len(key.shape)
    return rank > 2 and key is not None and key.shape is not None and key.shape[rank - 2] == 1


_UPGRADE_CHANGES: Mapping[str, tuple[Change, ...]] = Table(
    "change of meaning on the way up",
    [
        ("Attention", (Change(24, _MASK, _mask_broadcasts_not),)),
        ("AveragePool", (_POOL,)),
        (
            "BatchNormalization",
            (
                Change(
                    14,
                    "further outputs are those of a training step, in another form, before 14",
                    lambda node: not further_outputs(node),
                ),
            ),
        ),
        ("Cast", (_INFINITY,)),
        ("CastLike", (_INFINITY,)),
        (
            "Clip",
            (Change(11, "an absent bound is the largest float32 before opset 11", _no_larger),),
        ),
        ("ConvTranspose", (PADS,)),
        ("DequantizeLinear", (_SCALE,)),
        ("MaxPool", (_POOL,)),
        ("Mod", ()),
        ("OneHot", (Change(11, "a negative index selects nothing before opset 11"),)),
        (
            "QuantizeLinear",
            (
                _SCALE,
                Change(19, "input and scale may differ in type before opset 19", _no_int32),
            ),
        ),
        (
            "Resize",
            (
                Change(11, "the coordinates are those of `asymmetric` before opset 11"),
                Change(13, "an empty `scales` stands for an absent one before opset 13"),
            ),
        ),
        ("Scan", (Change(9, "the first axis is the batch before opset 9"),)),
        (
            "Split",
            (Change(18, "equal parts are asked for by nothing before opset 18", _sizes_are_given),),
        ),
    ],
)


def changed_by_upgrade(node: ir.Node, old: OpFacts, new: OpFacts) -> str | None:
    """Return the change of meaning that matters to a node which comes to a later version.

    Args:
        node: The node; its operator has both versions.
        old: The version it was written for.
        new: The later version it shall have.

    Returns:
        One sentence without a full stop; None when the same text means the same in both.
    """
    changes = _UPGRADE_CHANGES.get(node.op_type)
    if changes is None:
        changes = tuple(c for c in CHANGES.get(node.op_type, ()) if not c.is_added)
    return first_change(changes, node, old, new)
