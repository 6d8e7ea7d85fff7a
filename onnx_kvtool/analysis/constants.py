"""Folding of small integers: which numbers a shape computation or an axes input holds.

Only what the file itself fixes counts: an initializer that is also a graph input can be overridden
by the caller and is unknown, and a symbolic dimension is an unknown element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.element_type import WHOLE_TYPES
from onnx_kvtool.ops.schema import OpFacts, op_history
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.backward import fill
from onnx_kvtool.symbolic.partial import LARGEST, Partial
from onnx_kvtool.symbolic.rules.table import fold_rule
from onnx_kvtool.symbolic.stored import elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LARGEST",
    "Folder",
    "bound_attributes",
    "const_tensor",
    "constant_integers",
    "tensor_integers",
]

_INT32 = np.iinfo(np.int32)


def const_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or a Constant; None for others, and malformed ones."""
    try:
        return ir.convenience.get_const_tensor(value)
    except (TypeError, ValueError):  # a Constant with an attribute that none has
        return None


class Folder:
    """Folds integer values of one model; remembers every answer.

    Rewrites may go on between calls as long as a value keeps its meaning.
    """

    def __init__(self) -> None:
        self._memo: dict[ir.Value, Partial | None] = {}

    def integers(self, value: ir.Value | None) -> NDArray[np.int64] | None:
        """Return all elements of an integer or bool value; None unless each one is known."""
        partial = self.partial(value)
        if partial is None or not partial.known.all():
            return None
        return partial.numbers

    def partial(self, value: ir.Value | None) -> Partial | None:
        """Return what is known of the elements of an integer or bool value.

        Returns:
            Numbers and a mask of the known ones, both of the value's shape; None when the value
            has more than `LARGEST` elements, is no integer, or nothing is known of it, as of what
            a node gives that no version of its operator allows.
        """
        if value is None:
            return None
        return fill(value, self._memo, _operands, self._fold)

    def _fold(self, value: ir.Value) -> Partial | None:
        node = value.producer()
        if node is None:
            return _stored(value)
        if node.domain != "" or len(node.outputs) != 1:
            return None
        rule = fold_rule(node.op_type)
        bound = None if rule is None else bound_attributes(node)
        if rule is None or bound is None:
            return None
        _, attributes = bound
        inputs = [None if v is None else self._memo.get(v) for v in node.inputs]
        try:
            result = rule(node, inputs, attributes)
        except MalformedNode:
            return None
        if result is None or result.numbers.size > LARGEST:
            return None
        if value.dtype == ir.DataType.INT64:
            return result
        if value.dtype not in (None, ir.DataType.INT32, ir.DataType.BOOL):
            return None
        # Sums are taken in int64; in int32 they might have wrapped.
        narrow = (result.numbers >= _INT32.min) & (result.numbers <= _INT32.max)
        return Partial(result.numbers, result.known & narrow)


def bound_attributes(node: ir.Node) -> tuple[OpFacts, dict[str, Any]] | None:
    """Return the attributes of a node of the default domain, defaults among them.

    Returns:
        The newest version of the operator that allows the inputs and attributes of the node, and
        the attributes by name; None where no version allows them.
    """
    facts = next((one for one in op_history(node.op_type) if _is_allowed(node, one)), None)
    if facts is None:
        return None
    attributes: dict[str, Any] = {
        name: a.default for name, a in facts.attributes.items() if a.default is not None
    }
    attributes.update((name, given.value) for name, given in node.attributes.items())
    return facts, attributes


def _is_allowed(node: ir.Node, facts: OpFacts) -> bool:
    if not facts.min_inputs <= len(node.inputs) <= facts.max_inputs:
        return False
    for index, given in enumerate(node.inputs):
        formal = facts.input(index)
        if given is None and formal is not None and not formal.optional:
            return False
    if any(a.required and name not in node.attributes for name, a in facts.attributes.items()):
        return False
    return all(
        not given.is_ref()
        and name in facts.attributes
        and facts.attributes[name].type == given.type.value
        for name, given in node.attributes.items()
    )


def constant_integers(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the elements of an integer initializer or Constant, flat; None for anything else."""
    if value is None:
        return None
    numbers = Folder().integers(value)
    return None if numbers is None else tuple(int(n) for n in numbers.ravel())


def _operands(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    if node is None or node.domain != "" or fold_rule(node.op_type) is None:
        return []
    return [v for v in node.inputs if v is not None]


def _stored(value: ir.Value) -> Partial | None:
    tensor = value.const_value
    if tensor is None or value.is_graph_input():
        return None
    return tensor_integers(tensor)


def tensor_integers(tensor: ir.TensorProtocol) -> Partial | None:
    """Return the elements of a small embedded integer tensor; None for any other tensor."""
    if tensor.dtype not in WHOLE_TYPES or isinstance(tensor, ir.ExternalTensor):
        return None
    array = None if tensor.size > LARGEST else elements(tensor)
    return None if array is None else Partial.whole(array)
