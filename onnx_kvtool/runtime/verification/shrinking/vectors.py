"""Shapes that a model puts together from sizes and constants before an operator takes them.

What carries sizes is said here once more, and of few operators: copies must not be spoiled by what
spoils the rules of `symbolic`, which inference and rewriting read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.runtime.verification.shrinking.call import Call, Item, Links

__all__ = ["CARRYING", "carried", "count_carriers"]

_Items = list[Item] | None


def _shape(call: Call) -> _Items:
    shape = call.shape(0)
    if shape is None:
        return None
    end = next((a.i for a in call.node.attribute if a.name == "end"), len(shape))
    return [Item(size=size) for size in shape[call.number("start") : end]]


def _same(call: Call) -> _Items:
    return call.items[0]


def _reshaped(call: Call) -> _Items:
    """One number as a vector, or as a scalar."""
    items = call.items[0]
    return items if items is not None and len(items) == 1 else None


def _gather(call: Call) -> _Items:
    items, indices = call.items[0], call.integers[1]
    if items is None or indices is None or call.number("axis") not in (0, -1):
        return None
    if not all(-len(items) <= index < len(items) for index in indices):
        return None
    return [items[index] for index in indices]


def _slice(call: Call) -> _Items:
    items = call.items[0]
    begins, ends, axes, steps = (
        call.integers[place] if call.has(place) else default
        for place, default in ((1, None), (2, None), (3, [0]), (4, [1]))
    )
    if items is None or begins is None or ends is None or axes not in ([0], [-1]) or steps != [1]:
        return None
    return items[begins[0] : ends[0]] if len(begins) == len(ends) == 1 else None


def _concat(call: Call) -> _Items:
    joined: list[Item] = []
    for items in call.items:
        if items is None:
            return None
        joined += items
    return joined


_CARRIERS: Mapping[str, Callable[[Call], _Items]] = {
    "Cast": _same,
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshaped,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": _same,
    "Unsqueeze": _same,
}

CARRYING = frozenset(_CARRIERS) - {"Shape"}
"""Operators that hand integers of shapes on."""


def carried(call: Call) -> list[Item] | None:
    """Return the integers of the shape that a node gives; None if it gives no shape.

    Vectors and scalars are told apart by what reads them; other values hold no shape.
    """
    is_standard = call.node.domain in DEFAULT_DOMAINS
    carrier = _CARRIERS.get(call.node.op_type) if is_standard else None
    return None if carrier is None or not _are_flat(call) else carrier(call)


def _are_flat(call: Call) -> bool:
    """Return whether what a node hands on are vectors or scalars."""
    if call.node.op_type == "Shape":
        return True
    handed = range(len(call.shapes) if call.node.op_type == "Concat" else 1)
    return all((shape := call.shape(place)) is not None and len(shape) <= 1 for place in handed)


def count_carriers(
    nodes: Sequence[onnx.NodeProto], known: Mapping[str, object], links: Links, all_: Counter[str]
) -> None:
    """Count a node that hands a shape on among those that read it for sizes, if all that follow do.

    Args:
        nodes: The nodes of the graph, in order.
        known: Shapes that were put together, by name.
        links: Whose `readers` are counted up.
        all_: How many nodes read each value, the outputs of the graph among them.
    """
    for node in reversed(nodes):
        if node.op_type not in CARRYING or not node.output or node.output[0] not in known:
            continue
        name = node.output[0]
        if all_[name] == links.readers.get(name, 0):
            handed = node.input if node.op_type == "Concat" else node.input[:1]
            for read in handed:
                links.readers[read] = links.readers.get(read, 0) + 1
