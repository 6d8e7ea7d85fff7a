"""Nodes to which a change of their operator does not matter; what is not certain does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnx_kvtool.core.misdeclared import held

if TYPE_CHECKING:
    import onnx_ir as ir


__all__ = [
    "axes_from_front",
    "branches_agree",
    "indices_from_front",
    "is_float32",
    "is_inference",
    "is_none_of",
    "last_window_inside",
    "mask_is_whole",
    "one_scale",
    "pads_are_given",
    "truncates",
]


def one_scale(node: ir.Node) -> bool:
    """Whether the scale is certainly one number, not one for each index of an axis."""
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    return scale is not None and scale.shape is not None and list(scale.shape) in ([], [1])


def last_window_inside(node: ir.Node) -> bool:
    """Whether `ceil_mode` is off, or leaves no last window that starts in the padding behind."""
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    if given.get("ceil_mode", 0) == 0:
        return True
    data, kernel = node.inputs[0] if node.inputs else None, given.get("kernel_shape")
    if data is None or data.shape is None or kernel is None:
        return False
    if any(attribute.is_ref() for attribute in node.attributes.values()):
        return False
    if given.get("auto_pad", "NOTSET") != "NOTSET" or given.get("count_include_pad", 0) != 0:
        return False
    shape, count = data.shape, len(kernel)
    strides = given.get("strides", [1] * count)
    dilations = given.get("dilations", [1] * count)
    pads = given.get("pads", [0] * (2 * count))
    if {len(shape) - 2, len(strides), len(dilations), len(pads) / 2} != {count}:
        return False
    for axis in range(count):
        size = shape[2 + axis]
        if not isinstance(size, int):
            return False
        window = (kernel[axis] - 1) * dilations[axis] + 1
        room = size + pads[axis] + pads[axis + count] - window
        if -(-room // strides[axis]) * strides[axis] >= size + pads[axis]:
            return False
    return True


def is_inference(node: ir.Node) -> bool:
    """Whether BatchNormalization gives nothing but its result."""
    return len(node.outputs) == 1


def _integers(node: ir.Node) -> bool:
    value = node.inputs[0] if node.inputs else None
    return value is not None and value.dtype is not None and not value.dtype.is_floating_point()


def truncates(node: ir.Node) -> bool:
    """Whether Mod is of integers, or takes the sign of the dividend."""
    given = node.attributes.get("fmod")
    return _integers(node) or (given is not None and given.value == 1)


def mask_is_whole(node: ir.Node) -> bool:
    """Whether Attention has no mask, or one that is certainly as long as there are keys."""
    inputs = node.inputs
    mask = inputs[3] if len(inputs) > 3 else None
    if mask is None:
        return True
    key, past = inputs[1], inputs[4] if len(inputs) > 4 else None
    if mask.shape is None or key is None or key.shape is None or len(key.shape) not in (3, 4):
        return False
    length, rows = mask.shape[-1] if len(mask.shape) else None, key.shape[len(key.shape) - 2]
    if past is None:
        return length is not None and _named(length) and length == rows
    before = past.shape[2] if past.shape is not None and len(past.shape) == 4 else None
    sizes = (length, rows, before)
    return all(isinstance(size, int) for size in sizes) and length == rows + before  # type: ignore[operator]


def axes_from_front(node: ir.Node) -> bool:
    """Whether no axis is counted from the back, as all were counted before opset 11."""
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
    """Return whether an input holds constants of which none is negative."""

    def harmless(node: ir.Node) -> bool:
        indices = node.inputs[position] if len(node.inputs) > position else None
        if indices is None or indices.is_graph_input():
            return False
        if indices.dtype is not None and indices.dtype.name.startswith("UINT"):
            return True
        tensor = held(indices)
        if tensor is None or tensor.size > _FEW or tensor.dtype.name not in ("INT32", "INT64"):
            return False
        return bool((tensor.numpy() >= 0).all())

    return harmless


def pads_are_given(node: ir.Node) -> bool:
    """Whether ConvTranspose is told its pads, and need not divide an odd number in two."""
    auto_pad = node.attributes.get("auto_pad")
    given = auto_pad is None or (not auto_pad.is_ref() and auto_pad.value in ("NOTSET", "VALID"))
    return given and "output_shape" not in node.attributes


def is_float32(node: ir.Node) -> bool:
    """Whether the first input is certainly float32."""
    value = node.inputs[0] if node.inputs else None
    return value is not None and value.dtype is not None and value.dtype.name == "FLOAT"


def is_none_of(*names: str) -> Callable[[ir.Node], bool]:
    """Return whether the first input of a node is not known to be of one of these types."""

    def holds(node: ir.Node) -> bool:
        value = node.inputs[0] if node.inputs else None
        return value is None or value.dtype is None or value.dtype.name not in names

    return holds


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
"""Elements; indices of more are weights that nobody looks at."""
