"""What changed between opsets that a comparison of schemas does not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.view import given_dtype, given_input, given_integer

if TYPE_CHECKING:
    from onnx_kvtool.ops.schema import OpFacts


# Which IR version brought what a model can hold.


_D = ir.DataType

FIRST_IR: Mapping[ir.DataType, int] = {
    **dict.fromkeys((_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ), 9),
    **dict.fromkeys((_D.INT4, _D.UINT4), 10),
    _D.FLOAT4E2M1: 11,
    _D.FLOAT8E8M0: 12,
    **dict.fromkeys((_D.INT2, _D.UINT2), 13),
    **dict.fromkeys((_D.FLOAT6E2M3, _D.FLOAT6E3M2), 14),
}
"""IR version that brought each element type; those that are missing are as old as ONNX itself."""

CONSTANTS = 4
"""First IR version whose initializers need not be an input of its graph."""

FUNCTIONS = 8
"""IR version that brought model-local functions."""

OVERLOADS = 10
"""IR version that brought overloads of functions."""


# Whether a change of an operator certainly does not concern a node.


def one_scale(node: ir.Node) -> bool:
    """Whether the scale is certainly one number, not one for each index of an axis."""
    scale = given_input(node, 1)
    return scale is not None and scale.shape is not None and list(scale.shape) in ([], [1])


def last_window_inside(node: ir.Node) -> bool:
    """Whether `ceil_mode` is off, or leaves no last window that starts in the padding behind.

    With `auto_pad`, `count_include_pad` or unknown sizes, the rule of the operator decides.
    """
    if _given(node, "ceil_mode") == 0:
        return True
    if _given(node, "auto_pad") != "NOTSET" or _given(node, "count_include_pad", 0) != 0:
        return False
    data = given_input(node, 0)
    sizes = [None] if data is None or data.shape is None else data.shape[2:]
    return all(isinstance(size, int) for size in sizes) and windows_begin_inside(node)


def windows_begin_inside(node: ir.Node) -> bool:
    """Return whether no window of a pool begins in the padding behind the input.

    Only `ceil_mode` makes such windows. The texts before opset 22 count them and those from 22 on
    do not; onnxruntime and onnx's reference leave them out at every opset.
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
    strides = _given(node, "strides", [1] * count)
    dilations = _given(node, "dilations", [1] * count)
    pads = _given(node, "pads", [0] * (2 * count))
    data = given_input(node, 0)
    shape = None if data is None else data.shape
    if not count or {len(strides), len(dilations), len(pads) / 2} != {count}:
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
    """Return an attribute of a pool, else its default, else `otherwise`, which the text names."""
    attribute = node.attributes.get(name)
    if attribute is not None:
        return attribute.value
    facts = op_facts(node.op_type, NEWEST)
    declared = None if facts is None else facts.attributes.get(name)
    return otherwise if declared is None or declared.default is None else declared.default


def truncates(node: ir.Node) -> bool:
    """Whether Mod is of integers, or takes the sign of the dividend."""
    dtype = given_dtype(node)
    is_whole = dtype is not None and not dtype.is_floating_point()
    return is_whole or given_integer(node, "fmod") == 1


def mask_is_whole(node: ir.Node) -> bool:
    """Whether Attention has no mask, or one with certainly as many columns as there are keys."""
    mask, key, past = (given_input(node, index) for index in (3, 1, 4))
    if mask is None:
        return True
    if mask.shape is None or key is None or key.shape is None or len(key.shape) not in (3, 4):
        return False
    length, rows = mask.shape[-1] if len(mask.shape) else None, key.shape[-2]
    if past is None:
        return length is not None and _named(length) and length == rows
    before = past.shape[2] if past.shape is not None and len(past.shape) == 4 else None
    sizes = (length, rows, before)
    return all(isinstance(size, int) for size in sizes) and length == rows + before  # type: ignore[operator]


def axes_from_front(node: ir.Node) -> bool:
    """Whether no axis is negative: before opset 11 all are counted from the front."""
    for name in ("axis", "axes", "scan_input_axes", "scan_output_axes"):
        given = node.attributes.get(name)
        if given is None:
            continue
        if given.is_ref():
            return False
        axes = given.value if isinstance(given.value, (list, tuple)) else (given.value,)
        if any(axis < 0 for axis in axes):
            return False
    return True


def indices_from_front(position: int) -> Callable[[ir.Node], bool]:
    """Return whether an input holds constants, none of them negative."""

    def harmless(node: ir.Node) -> bool:
        indices = given_input(node, position)
        if indices is None or indices.is_graph_input():
            return False
        if indices.dtype is not None and indices.dtype.name.startswith("UINT"):
            return True
        tensor = stored_tensor(indices)
        if tensor is None or tensor.size > _FEW or tensor.dtype.name not in ("INT32", "INT64"):
            return False
        return bool((tensor.numpy() >= 0).all())

    return harmless


def pads_are_given(node: ir.Node) -> bool:
    """Whether ConvTranspose has explicit pads, so that it need not divide an odd number in two."""
    auto_pad = node.attributes.get("auto_pad")
    given = auto_pad is None or (not auto_pad.is_ref() and auto_pad.value in ("NOTSET", "VALID"))
    return given and "output_shape" not in node.attributes


def is_none_of(*types: ir.DataType) -> Callable[[ir.Node], bool]:
    """Return whether the first input of a node is not known to be of one of these types."""
    return lambda node: given_dtype(node) not in types


def branches_agree(node: ir.Node) -> bool:
    """Whether both branches of an If certainly give outputs of the same shapes."""
    bodies = [
        attribute.as_graph()
        for name in ("then_branch", "else_branch")
        if (attribute := node.attributes.get(name)) is not None and not attribute.is_ref()
    ]
    if len(bodies) < 2:
        return False
    for one, other in zip(bodies[0].outputs, bodies[1].outputs, strict=False):
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return False
        if not all(_named(a) and a == b for a, b in zip(one.shape, other.shape, strict=True)):
            return False
    return True


def _named(size: int | ir.SymbolicDim) -> bool:
    return isinstance(size, int) or size.value is not None


_FEW = 1 << 10
"""Most indices that are read; more are weights."""


_REDUCTIONS = {"add": 16, "mul": 16, "max": 18, "min": 18}

VALUE_LIMITS: Mapping[tuple[str, str], Mapping[str, int]] = Table(
    "value limit",
    [
        (("Pad", "mode"), {"wrap": 19}),
        (("Resize", "coordinate_transformation_mode"), {"half_pixel_symmetric": 19}),
        (("ScatterElements", "reduction"), _REDUCTIONS),
        (("ScatterND", "reduction"), _REDUCTIONS),
    ],
)
"""By operator and attribute, the strings that came later than the attribute, and their opsets."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of meaning at one opset.

    Attributes:
        since: The opset that brought it.
        text: What differs.
        harmless: Returns whether it does not matter to a node.
        is_added: Whether nodes of older opsets keep their meaning, so that it matters on the way
            down only.
    """

    since: int
    text: str
    harmless: Callable[[ir.Node], bool] = lambda node: False
    is_added: bool = False


_BOUNDS = Change(
    11,
    "an absent bound is the largest float32 before opset 11",
    lambda node: given_dtype(node) == _D.FLOAT,
)
_TRAINING = Change(14, "training outputs differ before 14", lambda node: len(node.outputs) == 1)
FRONT = Change(11, "axes are counted from the front before opset 11", axes_from_front, True)
"""A change of the attributes `axis` and `axes` of many operators."""

_NO_KERNEL = "onnxruntime has no kernel for the element type at older opsets"
"""The operator has a function body or a kernel at later opsets, so other operators express it."""

_NO_SLOPES = (_D.DOUBLE, _D.INT32, _D.INT64, _D.UINT32)
_NO_BACK = "indices are counted from the front before opset 11"
_SOFTMAX = Change(13, "the operator flattens its input at `axis` before opset 13")
_SCALE = Change(13, "the scale is one number for the whole input before opset 13", one_scale)
_MASK = "a mask has to be as long as there are keys before opset 24"
PADS = Change(
    11,
    "pads that follow from `auto_pad` or `output_shape` lie on the other side before opset 11",
    pads_are_given,
)
"""A change of ConvTranspose that matters on the way up and down."""

_POOL = Change(
    22,
    "before opset 22, the text of `ceil_mode=1` counts windows that begin in the padding behind",
    last_window_inside,
)

_WITH_AXES = (
    "ArgMax ArgMin Compress Concat Flatten ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Split Squeeze Unsqueeze"
)
"""Operators that allow negative axes since opset 11."""


CHANGES: Mapping[str, Sequence[Change]] = Table(
    "change of meaning",
    [
        (op, changes)
        for names, *changes in (
            ("Softmax LogSoftmax Hardmax", _SOFTMAX, FRONT),
            (f"{_WITH_AXES} Scan", FRONT),
            ("Gather", Change(11, _NO_BACK, indices_from_front(1), True)),
            ("OneHot", Change(11, _NO_BACK, indices_from_front(0))),
            ("Attention", Change(24, _MASK, mask_is_whole)),
            ("AveragePool MaxPool", _POOL),
            ("BatchNormalization", _TRAINING),
            ("Clip", Change(12, _NO_KERNEL, is_none_of(_D.DOUBLE), True), _BOUNDS),
            ("LeakyRelu", Change(16, _NO_KERNEL, is_none_of(_D.DOUBLE), True)),
            ("PRelu", Change(16, _NO_KERNEL, is_none_of(*_NO_SLOPES), True)),
            ("DFT", Change(20, "`axis` is an attribute with another default before opset 20")),
            ("DequantizeLinear QuantizeLinear", _SCALE),
            ("Dropout", Change(12, "`ratio` and `training_mode` are no inputs before opset 12")),
            ("GridSample", Change(20, "the modes have other names before opset 20")),
            ("GroupNormalization", Change(21, "scale and bias are per group before opset 21")),
            ("ConvTranspose", PADS),
            ("If", Change(11, "branches give equal shapes before opset 11", branches_agree, True)),
            ("Mod", Change(28, "floats need `fmod=1` before opset 28", truncates)),
            ("RoiAlign", Change(16, "`half_pixel` does not exist before opset 16")),
            (
                "Resize",
                Change(13, "`roi` and `scales` are required before opset 13"),
                Change(11, "the coordinates are those of `asymmetric` before opset 11"),
                Change(10, "the operator came with opset 10"),
            ),
            ("Upsample", Change(10, "the operator was replaced by Resize")),
        )
        for op in names.split()
    ],
)


def changed_meaning(node: ir.Node, old: OpFacts, new: OpFacts) -> str | None:
    """Return the change of meaning between two versions that matters to this node.

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
