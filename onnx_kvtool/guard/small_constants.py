"""The small constants of a model message: what nodes are told of sizes, counts and pads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from onnx_kvtool.model_io.forms import every_holder, every_node
from onnx_kvtool.ops.schema import op_history
from onnx_kvtool.ops.traits import Trait, having, traits_of

_A = onnx.AttributeProto
HOLDERS = having(Trait.HAS_BODY)
"""Operators with bodies that onnx's inference looks into."""

SMALL_BYTES = 1024
"""More than any list of sizes, axes or indices that inference reads; less than a weight."""

_T = onnx.TensorProto
INTEGERS = frozenset({_T.INT32, _T.INT64})
"""Element types of sizes."""
FLOATS = frozenset({_T.FLOAT, _T.DOUBLE})
"""Element types of the scales that sizes are multiplied with."""

Test = Callable[[NDArray[np.float64]], bool]

Sizing = tuple[tuple[int, ...], tuple[str, ...]]
"""Where a node is told sizes: the positions of inputs, and the names of attributes."""

Sizes = Mapping[str, Sizing]
"""The same by operator of the default domain."""


@functools.cache
def sizing(op_type: str) -> Sizing:
    """Return where an operator of the default domain is told sizes, in any of its versions."""
    names = traits_of(op_type).sizes
    places = {
        place
        for facts in op_history(op_type)
        for place, formal in enumerate(facts.inputs)
        if formal.name in names
    }
    return tuple(sorted(places)), names


def op_types(message: onnx.ModelProto) -> set[str]:
    """Return the operators of all nodes that onnx's inference looks at, nested ones too."""
    found = {node.op_type for node in message.graph.node}
    found.update(node.op_type for function in message.functions for node in function.node)
    if not found.isdisjoint(HOLDERS):
        found.update(node.op_type for node in every_node(message, HOLDERS))
    return found


def small_constants(
    message: onnx.ModelProto,
    test: Test,
    types: Set[int] = INTEGERS | FLOATS,
    within: Set[str] | None = HOLDERS,
) -> set[str]:
    """Return the names of the constants up to 1 KiB, of any graph, whose numbers pass a test.

    Args:
        message: The model.
        test: The test.
        types: The element types that a constant has to have.
        within: The operators whose bodies are looked into; None for all.
    """
    found = set()
    for holder in every_holder(message, within):
        for node in holder.node:
            if node.op_type == "Constant" and any(
                _attribute_has(attribute, test, types) for attribute in node.attribute
            ):
                found.update(node.output)
        if isinstance(holder, onnx.GraphProto):
            found.update(t.name for t in holder.initializer if _tensor_has(t, test, types))
    return found


def is_told(node: onnx.NodeProto, sizes: Sizing, names: Set[str], test: Test) -> bool:
    """Return whether a size that a node is told passes a test.

    Args:
        node: The node.
        sizes: Where it is told sizes.
        names: What `small_constants` returned for the test.
        test: The test, for its attributes.
    """
    places, attributes = sizes
    inputs = node.input
    if any(place < len(inputs) and inputs[place] in names for place in places):
        return True
    return any(a.name in attributes and _attribute_has(a, test) for a in node.attribute)


def _attribute_has(
    attribute: onnx.AttributeProto, test: Test, types: Set[int] = INTEGERS | FLOATS
) -> bool:
    if attribute.type == _A.TENSOR:
        return _tensor_has(attribute.t, test, types)
    numbers: list[float] = []
    if _T.INT64 in types:
        numbers += (attribute.i, *attribute.ints)
    if _T.FLOAT in types:
        numbers += (attribute.f, *attribute.floats)
    return test(np.array(numbers, np.float64))


def _tensor_has(tensor: onnx.TensorProto, test: Test, types: Set[int]) -> bool:
    """Return whether a tensor may pass a test; a large one holds no sizes, nor does a text."""
    if tensor.ByteSize() > SMALL_BYTES or tensor.data_type not in types:
        return False
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    try:
        with np.errstate(all="ignore"):  # of numbers that are none
            return test(numpy_helper.to_array(tensor).astype(np.float64))
    except (TypeError, ValueError):  # its data does not fit its type, which inference finds as well
        return True
