"""Layers that are alike, of which two models need only a few to be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.runtime.verification.shrinking.segments import Cut, Side
from onnx_kvtool.runtime.verification.shrinking.skeleton import WEIGHT_TYPES, Skeleton

__all__ = ["Thinned", "thinned"]


@dataclass(frozen=True, slots=True)
class Thinned:
    """Two models with fewer layers.

    Attributes:
        a: Model A.
        b: Model B.
        before: Segments of both models that have a counterpart which is alike.
        after: How many of them are left.
        stand_ins: For each output that was left out, the one that stands for it.
    """

    a: Skeleton
    b: Skeleton
    before: int
    after: int
    stand_ins: Mapping[str, str]


def thinned(a: Skeleton, b: Skeleton, most: int) -> Thinned | None:
    """Return two models with at most `most` segments of each kind; None if none can be left out.

    Two models are equal if, segment by segment, they give the same values at the end for the same
    values at the start. A segment of A with its counterpart in B is of one kind with another pair
    if all agree in operators, attributes, wiring, constants and types of weights, each reading
    weights and caches of its own in the same places; then one pair stands for both. A segment is
    left out by reading what came before it in place of what it gives. The values between segments
    become outputs: pairs stand for others only if they agree there.

    Args:
        a: Model A, whose large weights B has under the same names with the same values.
        b: Model B.
        most: How many of a kind are left, at least 1.
    """
    sides = Side(a), Side(b)
    cuts = _common_cuts(*sides)
    if len(cuts) < 3:
        return None
    for side in sides:
        side.divide(cuts)
    closed = [n == 0 or all(side.is_closed(n) for side in sides) for n in range(len(cuts))]
    cuts = [cut for n, cut in enumerate(cuts) if closed[n] or cut in sides[1].spine]
    if len(cuts) < len(closed):  # what one node gives in A crosses others in B
        for side in sides:
            side.divide(cuts)
    kinds: dict[object, list[int]] = {}
    for number in range(1, len(cuts)):
        if sides[0].is_alike_at_ends(number) and all(side.is_closed(number) for side in sides):
            kinds.setdefault(_kind(sides, number), []).append(number)
    dropped = sorted(number for numbers in kinds.values() for number in numbers[most:])
    if not dropped:
        return None
    renamed: dict[str, str] = {}
    for number in dropped:
        for old, new in zip(cuts[number], cuts[number - 1], strict=True):
            renamed[old] = renamed.get(new, new)
    known = {name for side in sides for name in (*side.outputs, *side.inputs)}
    shown = dict.fromkeys(
        renamed.get(name, name)
        for numbers in kinds.values()
        for number in numbers[: most if len(numbers) > most else 0]
        for name in (*cuts[number - 1], *cuts[number])
    )
    names = tuple(name for name in shown if name not in known)
    one, other = (side.without(frozenset(dropped), renamed, names) for side in sides)
    before = sum(len(numbers) for numbers in kinds.values() if len(numbers) > most)
    stand_ins = {
        name: stand_in
        for numbers in kinds.values()
        for number in numbers[most:]
        for name, stand_in in zip(sides[0].gives(number), sides[0].gives(numbers[0]), strict=True)
    }
    return Thinned(one, other, before, before - len(dropped), stand_ins)


def _common_cuts(a: Side, b: Side) -> list[Cut]:
    """Return the cuts that both models have, in the order of both.

    What one node of A gives may come from several of B: a sum and what it is normalised to.
    """
    found: list[Cut] = []
    last = -1
    for cut in a.spine:
        places = [b.flow.producer.get(name, -1) for name in cut]
        is_one = cut in b.spine or (len(cut) > 1 and not any(name in b.outputs for name in cut))
        if is_one and min(places) >= 0 and max(places) > last:
            found.append(cut)
            last = max(places)
    return found


def _kind(sides: tuple[Side, Side], number: int) -> object:
    """Return what the segments of both models have in common with others of their kind."""
    numbers: dict[str, int] = {}
    return tuple(tuple(_nodes(side, sides, number, numbers)) for side in sides)


def _nodes(
    side: Side, sides: tuple[Side, Side], number: int, numbers: dict[str, int]
) -> Iterator[object]:
    """Yield a description of each node of a segment, without names that are its own.

    `numbers` counts weights, inputs and outputs that only this segment has, for both models: that
    they stand at the same places in both is a part of what a segment is.
    """
    own: dict[str, object] = {n: ("start", i) for i, n in enumerate(side.cuts[number - 1])}
    ends = {name: place for place, name in enumerate(side.cuts[number])}
    for order, index in enumerate(side.members[number]):
        node = side.flow.nodes[index]
        reads = [own.get(n) or _outer(n, sides, number, numbers) for n in node.input]
        gives = []
        for place, name in enumerate(node.output):
            own[name] = (order, place)
            shown: object = None
            if name in side.outputs:
                type_ = side.outputs[name].type.SerializeToString(deterministic=True)
                shown = numbers.setdefault(name, len(numbers)), type_
            gives.append((bool(name), ends.get(name), shown))
        own[""] = None
        attributes = sorted(_attribute(attribute) for attribute in node.attribute)
        kind = node.domain, node.op_type, node.overload
        yield kind, tuple(reads), tuple(gives), tuple(attributes)


def _outer(name: str, sides: tuple[Side, Side], number: int, numbers: dict[str, int]) -> object:
    """Describe a value that a segment reads and does not make."""
    if not name:
        return None
    if any(side.homes(name) - {number} or name in side.outputs for side in sides):
        return name  # others read it as well: it is this very one
    what = [_leaf(side, name) for side in sides]
    if not any(what):
        return name
    if what[0] == what[1] and what[0] is not None and what[0].is_free:
        what = [replace(what[0], values=b"")]
    return numbers.setdefault(name, len(numbers)), *what


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A weight or an input: its type, what it holds, and whether other values would do as well."""

    type: object
    values: bytes = b""
    is_free: bool = False


def _leaf(side: Side, name: str) -> _Leaf | None:
    """Return what a weight or an input is; None for what is neither."""
    if name in side.tensors:
        tensor = side.tensors[name]
        type_ = tensor.data_type, tuple(tensor.dims)
        if name in side.skeleton.bare:
            # Weights are the same in both; other data of a file is not looked at.
            is_weight = tensor.data_type in WEIGHT_TYPES
            return _Leaf(type_, b"" if is_weight else name.encode())
        return _Leaf(type_, *_values(tensor))
    if name in side.inputs:
        return _Leaf(side.inputs[name].type.SerializeToString(deterministic=True))
    return None


def _values(tensor: onnx.TensorProto) -> tuple[bytes, bool]:
    """Return what a tensor holds, and whether the numbers are of no special meaning."""
    array = numpy_helper.to_array(tensor)
    is_weight = tensor.data_type in FLOAT_TYPES
    is_free = is_weight and not np.isin(array.astype(np.float64), _SPECIAL).any()
    return array.tobytes(), bool(is_free)


_SPECIAL = (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)


def _attribute(attribute: onnx.AttributeProto) -> bytes:
    bare = onnx.AttributeProto()
    bare.CopyFrom(attribute)
    bare.ClearField("doc_string")
    bare.t.ClearField("name") if bare.HasField("t") else None
    data: bytes = bare.SerializeToString(deterministic=True)
    return data
