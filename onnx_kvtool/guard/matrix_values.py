"""Models that make onnx's inference take the elements of a matrix for those of a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.long_vectors import HANDED_ON
from onnx_kvtool.guard.small_constants import HOLDERS, INTEGERS, Contents, is_told
from onnx_kvtool.model_io.forms import every_holder

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="takes the elements of a matrix for those of a vector while it infers: (2, 1) and (3,) are"
    " refused as (2,) and (3,)",
    instead="hides the elements of what an Unsqueeze makes a matrix of",
)

_AXES = ((1,), ("axes",))
_MARK = "\x00kvtool.matrix"
"""End of the name of what an Unsqueeze gives; no file has it."""

_READERS = HANDED_ON.keys() - {"Shape", "Size"}
"""Operators that compute with elements which inference knows, at some opset."""

_VECTORS = frozenset({"NonZero", "Range", "Shape", "Unsqueeze"})
_ELEMENTWISE = frozenset({"Abs", "Add", "Cast", "Div", "Identity", "Mul", "Neg", "Sub"})
"""Operators whose result is surely no scalar, and those whose is none if an operand is none: of all
such only those that onnx 1.23.2 computes elements of matter, so that this is no table of traits."""

_Holder = onnx.GraphProto | onnx.FunctionProto


def infer_past_matrix_values(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, where the elements of a matrix are unknown.

    Data propagation of onnx 1.23.2 has vectors only, and its Unsqueeze hands one on whatever comes
    out: (2, 1) and (3,) are then refused as (2,) and (3,), and (2, 1) and (1, 2) are added to two
    elements. Unsqueeze is the one operator that makes a matrix out of elements that are known, so
    each that may do so hands its result on through an Identity, which knows none.
    """
    made = set(_matrices(contents))
    if not made:
        return infer(contents)
    # In place, as a copy of all nodes takes longer than inference.
    places = [_hand_on(holder, made) for holder in contents.holders]
    try:
        result = infer(Contents(contents.message))
    finally:
        _restore(contents.holders, places)
    holders = every_holder(result, HOLDERS)
    _restore(holders, places)
    for holder in holders:
        marked = [i for i, info in enumerate(holder.value_info) if info.name.endswith(_MARK)]
        for place in reversed(marked):
            del holder.value_info[place]
    return result


def _matrices(contents: Contents) -> Iterator[str]:
    """Yield what an Unsqueeze makes that may be a matrix, and that is read for its elements."""
    unsqueezes = [
        node
        for node in contents.of("Unsqueeze")
        if node.domain in DEFAULT_DOMAINS and node.input and node.output
    ]
    made = {node.output[0] for node in unsqueezes}
    read = {
        name
        for node in contents.of(*_READERS)
        if node.domain in DEFAULT_DOMAINS
        for name in made.intersection(node.input)
    }
    if not read:
        return
    to_matrix = contents.constants(_makes_matrix, INTEGERS)
    vectors = _no_scalars(contents)
    for node in unsqueezes:
        if node.output[0] in read:
            is_matrix = is_told(node, _AXES, to_matrix, _makes_matrix)
            if is_matrix or node.input[0] in vectors:
                yield node.output[0]


def _makes_matrix(axes: NDArray[np.float64]) -> bool:
    """Return whether no Unsqueeze makes a vector with these axes."""
    return not np.isin(axes, (0, -1)).all()


def _no_scalars(contents: Contents) -> Set[str]:
    """Return names of values that have at least one dimension, as far as that is seen at once."""
    found: set[str] = set()
    for holder in contents.holders:
        if isinstance(holder, onnx.GraphProto):
            infos = (*holder.input, *holder.value_info)
            found.update(info.name for info in infos if info.type.tensor_type.shape.dim)
            found.update(tensor.name for tensor in holder.initializer if tensor.dims)
    for node in contents.of(*_ELEMENTWISE, *_VECTORS):
        passes = node.op_type in _VECTORS or not found.isdisjoint(node.input)
        if passes and node.domain in DEFAULT_DOMAINS:
            found.update(node.output)
    return found


def _hand_on(holder: _Holder, made: Set[str]) -> list[int]:
    """Put an Identity behind each Unsqueeze that makes one of these, and return the positions."""
    places: list[int] = []
    unsqueezes = [(i, node) for i, node in enumerate(holder.node) if node.op_type == "Unsqueeze"]
    for index, node in unsqueezes:
        if made.isdisjoint(node.output):
            continue
        name = node.output[0]
        node.output[0] = f"{name}{_MARK}"
        # Under the name of the node, so that what is said of either is said of it.
        identity = onnx.helper.make_node("Identity", [node.output[0]], [name], name=node.name)
        places.append(index + len(places) + 1)
        holder.node.insert(places[-1], identity)
    return places


def _restore(holders: list[_Holder], places: list[list[int]]) -> None:
    """Take the Identities away that stand at these positions of each holder."""
    for holder, positions in zip(holders, places, strict=True):
        for place in reversed(positions):
            holder.node[place - 1].output[0] = holder.node[place].output[0]
            del holder.node[place]
