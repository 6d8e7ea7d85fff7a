"""Constant integers that a graph computes, and small constants that operators move."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.storage import small_tensor
from onnx_kvtool.core.walk import maker, read_values
from onnx_kvtool.ops.schema import OpFacts, op_history
from onnx_kvtool.ops.traits import FLOAT_TYPES, WHOLE_TYPES, Trait, traits
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.contents import LARGEST, Partial, elements, fill, tensor_integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_kvtool.symbolic.rules.folding import FoldRule

__all__ = [
    "LARGEST",
    "ConstantFolder",
    "Constants",
    "bound_attributes",
    "const_tensor",
    "constant_integers",
    "tensor_integers",
]


# Folding of small integers, such as shape computations and axes. Only facts of the file count: a
# caller can override an initializer that is a graph input, and a symbolic dimension is unknown.


_INT32 = np.iinfo(np.int32)


def const_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or a Constant; None for others, and malformed ones."""
    try:
        return ir.convenience.get_const_tensor(value)
    except (TypeError, ValueError):  # a Constant with an attribute that none has
        return None


class ConstantFolder:
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

    def listed(self, value: ir.Value | None) -> list[int] | None:
        """Return the same elements one after the other."""
        numbers = self.integers(value)
        return None if numbers is None else [int(number) for number in numbers.flat]

    def partial(self, value: ir.Value | None) -> Partial | None:
        """Return what is known of the elements of an integer or bool value.

        None if the value has more than `LARGEST` elements, is no integer, or is unknown. The result
        of a node that no version of its operator allows is unknown.
        """
        if value is None:
            return None
        return fill(value, self._memo, _integer_operands, self._fold)

    def _fold(self, value: ir.Value) -> Partial | None:
        node, tensor = value.producer(), value.const_value
        if node is None:
            is_fixed = tensor is not None and not value.is_graph_input()
            return tensor_integers(tensor) if is_fixed and tensor is not None else None
        bound = bound_attributes(node) if _is_folded(node) else None
        if bound is None or len(node.outputs) != 1:
            return None
        inputs = [None if v is None else self._memo.get(v) for v in node.inputs]
        result = _run(node, inputs, bound[1])
        if result is None or result.numbers.size > LARGEST:
            return None
        if value.dtype == ir.DataType.INT64:
            return result
        if value.dtype not in (None, ir.DataType.INT32, ir.DataType.BOOL):
            return None
        # Sums are taken in int64; in int32 they might have wrapped.
        narrow = (result.numbers >= _INT32.min) & (result.numbers <= _INT32.max)
        return Partial(result.numbers, result.known & narrow)


def _run(
    node: ir.Node, inputs: Sequence[Partial | None], attributes: Mapping[str, Any]
) -> Partial | None:
    """Return what an operator makes of what is known of its inputs; None where it may fail."""
    rule = _fold_rule(node.op_type)
    try:
        return None if rule is None else rule(node, inputs, attributes)
    except (MalformedNode, ValueError, IndexError, OverflowError):
        return None


@functools.cache
def _fold_rule(op_type: str) -> FoldRule | None:
    """Return what folds an operator; None where nothing does."""
    from onnx_kvtool.symbolic.rules.table import OPERATOR_RULES  # only once something is folded

    own = OPERATOR_RULES.get(op_type)
    return None if own is None else own.fold


def bound_attributes(node: ir.Node) -> tuple[OpFacts, dict[str, Any]] | None:
    """Return the attributes of a node of the default domain, defaults among them.

    The newest version of the operator that allows the node gives them, and is returned, too. None
    if no version allows the node.
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
    numbers = ConstantFolder().listed(value)
    return None if numbers is None else tuple(numbers)


def _is_folded(node: ir.Node) -> bool:
    return node.domain == "" and _fold_rule(node.op_type) is not None


def _integer_operands(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    return read_values(node) if node is not None and _is_folded(node) else []


_CASTS = frozenset({"Cast", "CastLike"})
_MOST_EXACT = 2**11
"""Up to this size integers are exact in float16, and in the wider types of `_EXACT_IN`."""

_MOVED = FLOAT_TYPES | {
    *(ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16),
    *(ir.DataType.UINT32, ir.DataType.UINT64),
}
"""Types beside integers whose elements are moved: those whose elements take whole bytes."""

_ONE = ir.tensor(np.ones(1, np.int64))
_EXACT_IN = FLOAT_TYPES - {ir.DataType.BFLOAT16}


class Constants:
    """The constant values of a model, of any element type; remembers every answer.

    `ConstantFolder` folds integers and booleans. Other elements are known in the file, if operators
    only move them (Expand, Concat, Where, ...), from ConstantOfShape, and from a Cast of integers
    that is exact. For a movement, it folds positions in place of the elements, which stay
    bit-identical.
    """

    def __init__(self, folder: ConstantFolder) -> None:
        self._folder = folder
        self._memo: dict[ir.Value, NDArray[Any] | None] = {}

    def of(self, value: ir.Value) -> NDArray[Any] | None:
        """Return the elements of a value in its own type, of its shape.

        None where an element is unknown, where the type of the value is, where there are more
        than `LARGEST`, or where they stand in a file of their own.
        """
        if value.dtype is None:
            return None
        if value.dtype in WHOLE_TYPES:
            numbers = self._folder.integers(value)
            return None if numbers is None else numbers.astype(value.dtype.numpy())
        return fill(value, self._memo, _moved_operands, self._compute)

    def _compute(self, value: ir.Value) -> NDArray[Any] | None:
        node = value.producer()
        if node is None or node.op_type == "Constant":
            return _stored_constant(value)
        bound = bound_attributes(node) if _is_folded(node) else None
        if bound is None or len(node.outputs) != 1:
            return None
        facts, attributes = bound
        if node.op_type == "ConstantOfShape":
            return self._filled(node, attributes)
        if node.op_type in _CASTS:
            return self._cast(node, value.dtype)
        return self._moved(node, facts, attributes) if Trait.MOVES in traits(node) else None

    def _filled(self, node: ir.Node, attributes: Mapping[str, Any]) -> NDArray[Any] | None:
        tensor = attributes.get("value")
        filling = np.zeros(1, np.float32) if tensor is None else elements(tensor)
        whole = {**attributes, "value": _ONE}  # the rule fills with integers
        found = _run(node, [self._folder.partial(node.inputs[0])], whole)
        if filling is None or filling.size != 1 or found is None or not found.complete:
            return None
        return np.full(found.numbers.shape, filling.reshape(()))

    def _cast(self, node: ir.Node, dtype: ir.DataType | None) -> NDArray[Any] | None:
        numbers = self._folder.integers(node.inputs[0])
        if numbers is None or dtype not in _EXACT_IN or (np.abs(numbers) > _MOST_EXACT).any():
            return None
        return numbers.astype(dtype.numpy())

    def _moved(
        self, node: ir.Node, facts: OpFacts, attributes: Mapping[str, Any]
    ) -> NDArray[Any] | None:
        formal = facts.output(0)
        tables: list[NDArray[Any]] = []
        inputs: list[Partial | None] = []
        begin = 1  # 0 is what the operator itself fills with
        for index, value in enumerate(node.inputs):
            given = facts.input(index)
            if (
                value is None
                or given is None
                or formal is None
                or given.type_parameter != formal.type_parameter
            ):
                inputs.append(None if value is None else self._folder.partial(value))
                continue
            array = self._memo.get(value)
            if array is None:
                return None
            inputs.append(Partial.whole(np.arange(array.size).reshape(array.shape) + begin))
            begin += array.size
            tables.append(array.reshape(-1))
        found = _run(node, inputs, attributes)
        if found is None or not found.complete or not tables:
            return None
        return np.concatenate([np.zeros(1, tables[0].dtype), *tables])[found.numbers]


def _moved_operands(value: ir.Value) -> list[ir.Value]:
    node = maker(value)
    moved = read_values(node) if node is not None and Trait.MOVES in traits(node) else ()
    return [v for v in moved if v.dtype not in WHOLE_TYPES]


def _stored_constant(value: ir.Value) -> NDArray[Any] | None:
    """Return the elements of a small tensor of the file; None for any other value."""
    tensor = small_tensor(value, LARGEST)
    return None if tensor is None or tensor.dtype not in _MOVED else elements(tensor)
