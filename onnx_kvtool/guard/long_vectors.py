"""Models that make onnx's inference write down each element of a very long vector."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.small_constants import (
    FLOATS,
    HOLDERS,
    INTEGERS,
    Contents,
    Sizes,
    is_told,
    sizing,
)
from onnx_kvtool.model_io.forms import bodies
from onnx_kvtool.ops.traits import Trait, having, traits, traits_of

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="writes down each element of a vector that Add, Gather or Slice reads while it infers, 150"
    " bytes for each, also of one that is declared to have 10^9",
    instead="leaves elements out of account where a vector may be that long",
)

LONGEST = 1 << 20
"""Elements of the longest vector that inference is told of."""

_LARGE, _END = 1 << 15, 1 << 62
"""Between them lies a number that may be a size; above the second it means the end of an axis."""

_ALL, _FIRST = slice(None), slice(1)
HANDED_ON = {
    **dict.fromkeys(("Add", "Cast", "Concat", "Mul", "Sub"), _ALL),
    **dict.fromkeys(("Gather", "Slice", "Squeeze", "Unsqueeze"), _FIRST),
    **dict.fromkeys(("Shape", "Size"), slice(0)),
}
"""The operators that onnx 1.23.2 computes the elements of, with the inputs whose elements come to
be, or make, those of the output; what else they read only chooses among them."""


def may_run_out(contents: Contents) -> bool:
    """Return whether inference with data propagation may write down a very long vector.

    It writes down each element of a value of rank 1 that an operator of `HANDED_ON` reads. Such a
    value is long where that is declared, or where a node is told a large number by a constant, or
    what was computed of one, or where Concats make it of others, as sixty that double a vector.
    Sizes that many small ones make in another way are not found.
    """
    if contents.operators.isdisjoint(HANDED_ON):
        return False
    graph = contents.message.graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    if any(_is_long(info.type.tensor_type.shape) for info in infos) or _piles_up(contents):
        return True
    large = contents.constants(_may_be_a_large_size, INTEGERS)
    scales = contents.constants(_may_be_a_large_size, FLOATS)
    return bool(large or scales) and _tells_a_node(contents, large, scales)


def _is_long(shape: onnx.TensorShapeProto) -> bool:
    return len(shape.dim) == 1 and shape.dim[0].dim_value > LONGEST


def _piles_up(contents: Contents) -> bool:
    """Return whether Concats may join vectors to a very long one; other axes do not count."""
    graph = contents.message.graph
    lengths = {info.name: _length(info) for info in graph.input}
    lengths.update((t.name, t.dims[0]) for t in graph.initializer if len(t.dims) == 1)
    most = max(lengths.values(), default=1)  # if each Concat joined the longest there is by then
    for node in contents.of("Concat"):
        if most <= LONGEST and _is_first(node):
            most *= max(1, len(node.input))
    if most <= LONGEST:
        return False
    passes: dict[tuple[str, str], bool] = {}  # by operator, as most nodes are of a few
    for node in contents.nodes:
        op = node.op_type, node.domain
        if op not in passes:
            keeps = traits(node).any(Trait.KEEPS_SHAPE, Trait.BROADCASTS)
            passes[op] = op[0] in HANDED_ON or keeps
        if not passes[op]:
            continue
        if op[0] == "Concat":
            given = [lengths.get(name, 1) for name in node.input if name]
            length = sum(given) if _is_first(node) else 1
        else:
            length = max([lengths[name] for name in node.input if name in lengths], default=1)
        if length > LONGEST:
            return True
        if length > 1:  # what is not there counts as 1
            lengths.update((name, length) for name in node.output[:1] if name)
    return False


def _is_first(node: onnx.NodeProto) -> bool:
    """Return whether a Concat joins vectors, as far as its axis says."""
    return all(attribute.i <= 0 for attribute in node.attribute)


def _length(info: onnx.ValueInfoProto) -> int:
    dims = info.type.tensor_type.shape.dim
    return max(dims[0].dim_value, 1) if len(dims) == 1 else 1


def _may_be_a_large_size(numbers: NDArray[np.float64]) -> bool:
    sizes = np.abs(numbers)
    return bool(((sizes > _LARGE) & (sizes < _END)).any())


def _tells_a_node(contents: Contents, large: set[str], scales: set[str]) -> bool:
    """Return whether a node may be told a size by one of these constants.

    Most large numbers tell none: the end of a Slice, what Where or Clip puts in, a mask's filling.

    Args:
        contents: Those of the model.
        large: Names of constants of integers; those of what is computed of them are added.
        scales: Names of constants of floats; inference computes nothing from them.
    """
    functions = contents.message.functions
    calls = {(function.domain, function.name) for function in functions}
    returned = {name for function in functions for name in function.output}
    told: dict[tuple[str, str], bool] = {}  # by operator, as most nodes are of a few
    for node in contents.nodes:
        key = node.domain, node.op_type
        for graph in bodies(node) if key[1] in HOLDERS else ():
            returned.update(value.name for value in graph.output)
        op = key[1] if key[0] in DEFAULT_DOMAINS else "::".join(key)
        if key not in told:
            keeps = traits(node).any(Trait.KEEPS_SHAPE, Trait.BROADCASTS)  # no operand tells it
            has_rule = onnx.defs.has(node.op_type, canonical_domain(node.domain))
            told[key] = key in calls or op in HANDED_ON or (not keeps and has_rule)
        if not told[key]:
            continue
        names = list(node.input)
        if large.isdisjoint(names) and scales.isdisjoint(names):
            continue
        if key in calls or op not in HANDED_ON:
            return True
        if not large.isdisjoint(names[HANDED_ON[op]]):
            large.update(node.output)
    return not large.isdisjoint(returned)


@functools.cache
def _makers() -> Sizes:
    """Return where operators are told sizes whose result may be longer than their inputs."""
    return {
        op_type: sizing(op_type)
        for op_type in sorted(having())
        if (kinds := traits_of(op_type)).sizes and not kinds.any(Trait.VIEW, Trait.PART)
    }


def makes_long_vector(contents: Contents) -> bool:
    """Return whether a node is told by a constant to make more than 2**20 elements along an axis.

    Told so by a size that is computed, it is not found.
    """
    makers = _makers()
    found = [node for node in contents.of(*makers) if node.domain in DEFAULT_DOMAINS]
    long = contents.constants(_is_above) if found else set()
    return any(is_told(node, makers[node.op_type], long, _is_above) for node in found)


def _is_above(numbers: NDArray[np.float64]) -> bool:
    return bool((np.abs(numbers) > LONGEST).any())
