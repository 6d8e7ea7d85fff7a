"""What changed between opsets that a comparison of schemas does not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.harmless import (
    axes_from_front,
    branches_agree,
    indices_from_front,
    is_float32,
    is_inference,
    is_none_of,
    last_window_inside,
    mask_is_whole,
    one_scale,
    pads_are_given,
    truncates,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.ops.schema import OpFacts

__all__ = [
    "CHANGES",
    "FRONT",
    "PADS",
    "VALUE_LIMITS",
    "Change",
    "ValueLimit",
    "changed_meaning",
    "first_change",
]


@dataclass(frozen=True, slots=True)
class ValueLimit:
    """Values of a string attribute that came later than the attribute.

    Attributes:
        attribute: Name of the attribute.
        values: The values that came later.
        since: The opset with which they came.
    """

    attribute: str
    values: frozenset[str]
    since: int


VALUE_LIMITS: Mapping[str, tuple[ValueLimit, ...]] = Table(
    "value limit",
    [
        ("Pad", (ValueLimit("mode", frozenset({"wrap"}), 19),)),
        (
            "Resize",
            (
                ValueLimit(
                    "coordinate_transformation_mode", frozenset({"half_pixel_symmetric"}), 19
                ),
            ),
        ),
        (
            "ScatterElements",
            (
                ValueLimit("reduction", frozenset({"add", "mul"}), 16),
                ValueLimit("reduction", frozenset({"max", "min"}), 18),
            ),
        ),
        (
            "ScatterND",
            (
                ValueLimit("reduction", frozenset({"add", "mul"}), 16),
                ValueLimit("reduction", frozenset({"max", "min"}), 18),
            ),
        ),
    ],
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of meaning at one opset.

    Attributes:
        since: The opset that brought it.
        text: What differs.
        harmless: Tells of a node whether it does not matter to it.
        is_added: Whether nodes of older opsets mean the same from then on, so that it matters on
            the way down alone.
    """

    since: int
    text: str
    harmless: Callable[[ir.Node], bool] = lambda node: False
    is_added: bool = False


_BOUNDS = Change(11, "an absent bound is the largest float32 before opset 11", is_float32)
FRONT = Change(11, "axes are counted from the front before opset 11", axes_from_front, True)
"""What the attributes `axis` and `axes` of many operators mean."""

_NO_KERNEL = "onnxruntime has no kernel for the element type at older opsets"
"""Of operators with a body, or a kernel, at later ones: they are written with other operators."""

_NO_SLOPES = ("DOUBLE", "INT32", "INT64", "UINT32")
_NO_BACK = "indices are counted from the front before opset 11"
_SOFTMAX = Change(13, "the operator flattens its input at `axis` before opset 13")
_SCALE = Change(13, "the scale is one number for the whole input before opset 13", one_scale)
_MASK = "a mask has to be as long as there are keys before opset 24"
PADS = Change(
    11,
    "pads that follow from `auto_pad` or `output_shape` lie on the other side before opset 11",
    pads_are_given,
)
"""What ConvTranspose means another thing by before opset 11, on both ways."""

_POOL = Change(22, "`ceil_mode=1` gives another output shape before opset 22", last_window_inside)

_WITH_AXES = (
    *("ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
    *("ReduceSumSquare", "Split", "Squeeze", "Unsqueeze"),
)
"""Operators for which negative axes came with opset 11."""


CHANGES: Mapping[str, tuple[Change, ...]] = Table(
    "change of meaning",
    [
        ("Softmax", (_SOFTMAX, FRONT)),
        ("LogSoftmax", (_SOFTMAX, FRONT)),
        ("Hardmax", (_SOFTMAX, FRONT)),
        *((op, (FRONT,)) for op in (*_WITH_AXES, "Scan")),
        ("Gather", (Change(11, _NO_BACK, indices_from_front(1), True),)),
        ("OneHot", (Change(11, _NO_BACK, indices_from_front(0)),)),
        ("Attention", (Change(24, _MASK, mask_is_whole),)),
        ("AveragePool", (_POOL,)),
        ("MaxPool", (_POOL,)),
        ("BatchNormalization", (Change(14, "training outputs differ before 14", is_inference),)),
        ("Clip", (Change(12, _NO_KERNEL, is_none_of("DOUBLE"), True), _BOUNDS)),
        ("LeakyRelu", (Change(16, _NO_KERNEL, is_none_of("DOUBLE"), True),)),
        ("PRelu", (Change(16, _NO_KERNEL, is_none_of(*_NO_SLOPES), True),)),
        ("DFT", (Change(20, "`axis` is an attribute with another default before opset 20"),)),
        ("DequantizeLinear", (_SCALE,)),
        ("Dropout", (Change(12, "`ratio` and `training_mode` are no inputs before opset 12"),)),
        ("GridSample", (Change(20, "the modes have other names before opset 20"),)),
        ("GroupNormalization", (Change(21, "scale and bias are per group before opset 21"),)),
        ("ConvTranspose", (PADS,)),
        ("If", (Change(11, "branches give equal shapes before opset 11", branches_agree, True),)),
        ("Mod", (Change(28, "floats need `fmod=1` before opset 28", truncates),)),
        ("QuantizeLinear", (_SCALE,)),
        ("RoiAlign", (Change(16, "`half_pixel` does not exist before opset 16"),)),
        (
            "Resize",
            (
                Change(13, "`roi` and `scales` are required before opset 13"),
                Change(11, "the coordinates are those of `asymmetric` before opset 11"),
                Change(10, "the operator came with opset 10"),
            ),
        ),
        ("Upsample", (Change(10, "the operator was replaced by Resize"),)),
    ],
)


def changed_meaning(node: ir.Node, old: OpFacts, new: OpFacts) -> str | None:
    """Return the change of meaning between two versions that matters to this node.

    Args:
        node: The node; its operator has both versions.
        old: The version it was written for.
        new: The version it shall have.

    Returns:
        One sentence without a full stop; None when the same text means the same in both.
    """
    return first_change(CHANGES.get(node.op_type, ()), node, old, new)


def first_change(
    changes: Sequence[Change], node: ir.Node, old: OpFacts, new: OpFacts
) -> str | None:
    """Return the text of the first change between two versions that matters to a node, or None."""
    low, high = sorted((old.since_version, new.since_version))
    for change in changes:
        if low < change.since <= high and not change.harmless(node):
            return change.text
    return None
