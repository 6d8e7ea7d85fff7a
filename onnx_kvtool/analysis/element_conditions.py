"""Conditions of `targets/runtimes.toml` on what elements depend on: constants, sizes, elements.

They are for runtimes that work shapes out before anything runs, with a name for a size that is not
known.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dims import dims_of

if TYPE_CHECKING:
    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.targets.release import Limit

__all__ = [
    "given_out",
    "mixed_sizes",
    "negative_indices",
    "negative_indices_open",
    "no_value",
    "off_zero",
    "shape_of_values",
    "type_of",
]

_LONG_WAY = 100
"""Nodes from a shape back to what it is computed from."""


def shape_of_values(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the operand of the limit follows from more than shapes and constants.

    A long way counts as if it did.
    """
    assert limit.operand is not None
    view = NodeView(node, opset)
    if limit.operand not in {formal.name for formal in view.facts.inputs}:
        return False  # an attribute of this version
    value = view.input(limit.operand)
    return value is not None and _follows_from_elements(value)


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and not value.is_graph_input()


def _follows_from_elements(value: ir.Value | None, others: Collection[str] = ()) -> bool:
    """Return whether a value follows from more than shapes and constants, or from `others`."""
    before, steps = [value], 0
    while before and steps < _LONG_WAY:
        found = before.pop()
        if found is None or _is_constant(found):
            continue
        producer = found.producer()
        if producer is None or producer.op_type in others:
            return True
        if Trait.GIVES_SIZES not in traits(producer):
            before += producer.inputs
        steps += 1
    return bool(before)


def mixed_sizes(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether one operand is a size without a number, and the other is computed from more."""
    if not any(v is not None and v.dtype in _INTEGERS for v in node.inputs):
        return False
    kinds = {_kind(value, folder) for value in node.inputs[:2]}
    return kinds == {"size", "elements"}


_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


def _kind(value: ir.Value | None, folder: Folder) -> str:
    """Return whether a value is a number, a size without one, or computed from elements.

    What Range counts are elements.
    """
    if value is None or _is_constant(value) or folder.integers(value) is not None:
        return "number"
    return "elements" if _follows_from_elements(value, _COUNTS) else "size"


_COUNTS = frozenset({"Range", "CumSum", "NonZero", "ConstantOfShape", "Expand", "Tile"})
"""What makes more elements out of sizes."""


def given_out(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether int64 that it gives is a result of the model, as it is or after arithmetic.

    What a Scan takes is given out as well: its body declares the type.
    """
    before, seen = [node.outputs[0]], {node.outputs[0]}
    while before and len(seen) < _LONG_WAY:
        value = before.pop()
        if value.dtype is not None and value.dtype.name != "INT64":
            continue
        if value.is_graph_output():
            return True
        for user, index in value.uses():
            if user.op_type == "Scan" and is_standard(user):
                return True
            if is_standard(user) and (index == 0 or _carries(user)):
                new = set(user.outputs[:1]) - seen
                seen |= new
                before += new
    return False


def _carries(node: ir.Node) -> bool:
    """Return whether elements of every operand, not only of the first, may be in the result."""
    return node.op_type == "Concat" or Trait.ELEMENTWISE in traits(node)


def negative_indices(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the indices, which are the second input, may count from the end."""
    return not _is_from_the_front(node.inputs[1], folder, _LONG_WAY)


def negative_indices_open(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether they may, into dimensions of which not all are numbers."""
    view = NodeView(node, opset)
    data, indices = dims_of(view.required("data")), dims_of(view.required("indices"))
    batch = view.integer("batch_dims") if "batch_dims" in view.facts.attributes else 0
    length = indices[-1] if indices else None
    if data is not None and isinstance(length, int):
        sizes = data[batch : batch + length]
        if len(sizes) == length and all(isinstance(size, int) for size in sizes):
            return False
    return negative_indices(node, opset, limit, folder)


def _is_from_the_front(value: ir.Value | None, folder: Folder, steps: int) -> bool:
    """Return whether every element is certainly at least 0, as far as `steps` nodes tell."""
    if value is None or steps == 0:
        return False
    numbers = folder.integers(value)
    if numbers is not None:
        return bool((numbers >= 0).all())
    if value.const_value is not None and not value.is_graph_input():
        return bool((value.const_value.numpy() >= 0).all())
    node = value.producer()
    if node is None or not is_standard(node):
        return False
    if node.op_type in _NEVER_NEGATIVE:
        return True
    if node.op_type == "Where" and _turns(node):
        return True
    first = 1 if node.op_type == "Where" else 0
    last = len(node.inputs) if node.op_type in _OF_ALL else first + 1
    if node.op_type not in (*_OF_ALL, *_OF_FIRST):
        return False
    return all(_is_from_the_front(one, folder, steps - 1) for one in node.inputs[first:last])


_NEVER_NEGATIVE = frozenset({"Abs", "ArgMax", "ArgMin", "NonZero", "Shape", "Size"})


_OF_ALL = frozenset({"Add", "Concat", "Div", "Max", "Min", "Mod", "Mul", "Range", "Where"})
"""What gives no negative integers where no operand has any."""


_OF_FIRST = frozenset(
    {
        *("Cast", "CumSum", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""What gives no negative integers where the first operand has none."""


def _turns(node: ir.Node) -> bool:
    """Return whether a Where adds a size to what is below 0, as exporters write it."""
    condition, _, kept = node.inputs[:3]
    less = None if condition is None else condition.producer()
    return less is not None and less.op_type == "Less" and less.inputs[0] is kept


def no_value(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether ConstantOfShape leaves its value, and with it the element type, to the default."""
    return "value" not in node.attributes


def off_zero(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the operand of the limit, a zero point, is another number than 0, or no constant."""
    assert limit.operand is not None
    value = NodeView(node, opset).input(limit.operand)
    if value is None:
        return False
    tensor = None if value.is_graph_input() else const_tensor(value)
    return tensor is None or bool(tensor.numpy().any())


def type_of(node: ir.Node) -> str | None:
    """Return the element type that the first input and the first output have; None if unknown."""
    for value in (node.inputs[0], node.outputs[0]):
        if value is not None and value.dtype is not None:
            return value.dtype.name.lower()
    return None
