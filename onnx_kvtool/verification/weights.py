"""Whether two models are the same but for names and weights, and weights compared."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.model_io.stored import ConvertedTensor
from onnx_kvtool.model_io.verbatim import every_node
from onnx_kvtool.runtime.sessions import Array
from onnx_kvtool.verification.comparison.differences import bits_differ, compare, distances, largest
from onnx_kvtool.verification.subject import Subject

if TYPE_CHECKING:
    from onnx_kvtool.verification.shrinking.drawn_weights import Skeleton

# Whether two models are the same but for names and the values of their weights.


_A = onnx.AttributeProto


@dataclass(frozen=True, slots=True)
class Likeness:
    """How the parts of two models that are alike correspond.

    Attributes:
        values: Name in A and name in B of each node output of the main graph, in order.
        weights: Name in A and name in B of each initializer of the main graph.
        tensors: The tensors in attributes and in sub-graphs, A's and B's, with what to call them.
    """

    values: list[tuple[str, str]]
    weights: list[tuple[str, str]]
    tensors: list[tuple[str, onnx.TensorProto, onnx.TensorProto]]


def likeness(a: Subject, b: Subject) -> Likeness | None:
    """Return how `a` and `b` correspond if they do the same operations; None if they do not.

    They do if they have the same operators in the same order, connected in the same way, with the
    same attributes, opsets and functions, and weights of the same types and shapes. Names, the
    values of tensors, declared types and remarks do not matter. Such models give the same bits, so
    that the least difference in a weight shows.
    """
    if a.operators != b.operators:  # which spares most pairs the rest
        return None
    return alike(*(onnx.ModelProto.FromString(subject.model) for subject in (a, b)))


def alike(a: onnx.ModelProto, b: onnx.ModelProto) -> Likeness | None:
    """Return how two messages correspond; see `likeness`."""
    one, other = _Form(a), _Form(b)
    if one.form != other.form:
        return None
    # One that no node reads has its name in both.
    names = {t.name: t.name for t in a.graph.initializer}
    names.update(zip(one.weights, other.weights, strict=True))
    kinds = {t.name: (t.data_type, list(t.dims)) for t in b.graph.initializer}
    for tensor in a.graph.initializer:
        if kinds.get(names[tensor.name]) != (tensor.data_type, list(tensor.dims)):
            return None
    tensors = zip(one.tensors, other.tensors, strict=True)
    return Likeness(
        list(zip(one.values, other.values, strict=True)),
        list(names.items()),
        [(label, tensor, counterpart) for (label, tensor), (_, counterpart) in tensors],
    )


class _Form:
    """What a model does: the same for models that differ in names, remarks and values of tensors.

    Values have numbers in place of names, initializers in the order of their first use.

    Attributes:
        form: Lists and tuples that hold all that matters.
        values: The node outputs of the main graph.
        weights: The initializers of the main graph that are read, in the order of their numbers.
        tensors: The tensors in attributes and in sub-graphs, with what to call them.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._numbers = itertools.count()
        self.weights: list[str] = []
        self.tensors: list[tuple[str, onnx.TensorProto]] = []
        functions = sorted(model.functions, key=lambda f: (f.domain, f.name, f.overload))
        self.form = (
            _imports(model.opset_import),
            [self._function(function) for function in functions],
            self._graph(model.graph, {}, self.weights),
        )
        self.values = [name for node in model.graph.node for name in node.output if name]

    def _function(self, function: onnx.FunctionProto) -> object:
        label, names = f"function `{function.name}`", dict[str, int]()
        return (
            (function.domain, function.name, function.overload),
            _imports(function.opset_import),
            list(function.attribute),
            [self._attribute(given, names, label) for given in function.attribute_proto],
            self._number(function.input, names),
            self._nodes(function.node, names),
            _read(function.output, names),
        )

    def _graph(
        self, graph: onnx.GraphProto, outer: Mapping[str, int], weights: list[str] | None = None
    ) -> object:
        """Return the form of a graph; `outer` has the numbers of values of enclosing graphs."""
        names = dict(outer)
        inputs = self._number([value.name for value in graph.input], names)
        own = {tensor.name: tensor for tensor in graph.initializer}
        read = [*(name for node in every_node(graph) for name in node.input)]
        read += [value.name for value in graph.output]
        order = [name for name in dict.fromkeys(read) if name in own]
        self._number([name for name in order if name not in names], names)
        if weights is None:
            self.tensors += [(f"initializer `{name}`", own[name]) for name in order]
        else:
            weights += order
        return (
            inputs,
            len(own),
            [(names[name], own[name].data_type, list(own[name].dims)) for name in order],
            [object() for _ in graph.sparse_initializer],  # which is equal to nothing
            self._nodes(graph.node, names),
            _read([value.name for value in graph.output], names),
        )

    def _number(self, defined: Iterable[str], names: dict[str, int]) -> list[int | str]:
        """Give each name a number of its own, and return what stands for them."""
        names.update((name, next(self._numbers)) for name in defined if name)
        return [names.get(name, name) for name in defined]

    def _nodes(self, nodes: Iterable[onnx.NodeProto], names: dict[str, int]) -> list[object]:
        found: list[object] = []
        for node in nodes:
            label = f"of node `{node.name or ''.join(node.output[:1])}`"
            read = _read(node.input, names)
            attributes = [
                (given.name, self._attribute(given, names, f"attribute `{given.name}` {label}"))
                for given in sorted(node.attribute, key=lambda given: given.name)
            ]
            found.append((operator_of(node), read, attributes, self._number(node.output, names)))
        return found

    def _attribute(
        self, given: onnx.AttributeProto, names: Mapping[str, int], label: str
    ) -> object:
        if given.type in (_A.GRAPH, _A.GRAPHS) and not given.ref_attr_name:
            graphs = given.graphs if given.type == _A.GRAPHS else [given.g]
            return given.type, [self._graph(graph, names) for graph in graphs]
        if given.type == _A.TENSOR and not given.ref_attr_name:
            self.tensors.append((label, given.t))
            return given.type, given.t.data_type, list(given.t.dims)
        return bare_attribute(given)


def bare_attribute(given: onnx.AttributeProto) -> bytes:
    """Return an attribute without remarks and without the name of its tensor."""
    bare = onnx.AttributeProto()
    bare.CopyFrom(given)
    bare.ClearField("doc_string")
    if bare.HasField("t"):
        bare.t.ClearField("name")
    data: bytes = bare.SerializeToString(deterministic=True)
    return data


def _read(names: Iterable[str], numbers: Mapping[str, int]) -> list[object]:
    """Return what stands for names that are read; one without a number is equal to no other."""
    return [numbers.get(name, object() if name else "") for name in names]


def operator_of(node: onnx.NodeProto) -> tuple[str, str, str]:
    """Return domain, type and overload of a node."""
    return canonical_domain(node.domain), node.op_type, node.overload


def _imports(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {canonical_domain(entry.domain): entry.version for entry in imports}


# Weights that two models share, compared with each other.


_CHUNK = 1 << 24
"""Elements that are compared at a time."""

SIZES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.STRING})
"""Types of constants that a rewrite may well change: shapes, axes, indices, masks."""

_MOST_ROWS = 5
"""Rows that are named of a weight that differs."""

_MADE = "kvtool/"
"""How the names of constants begin that a rewrite makes."""


Weighted: TypeAlias = "Subject | Skeleton"
"""A model with known weights."""


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """How an initializer of the main graphs differs.

    Attributes:
        a: Its name in A.
        b: Its name in B.
        rows: Some of the indices of its first axis where it differs, the first and the last one
            among them; empty for a scalar, and where types or shapes differ.
        reason: Its first element that differs, in words.
        share: Largest difference, as a share of the largest finite value; infinite if the types or
            shapes differ.
        is_permuted: Whether both hold the same values in another order.
    """

    a: str
    b: str
    rows: tuple[int, ...]
    reason: str
    share: float
    is_permuted: bool


def weight_differences(
    a: Weighted, b: Weighted, found: Likeness | None
) -> Iterator[WeightDifference]:
    """Yield each initializer of the main graphs that differs.

    In models that are not alike, those of one name, type and shape are compared.
    """
    for name_a, name_b, reason in _reasons(a, b, found):
        one, other = array(a.weights[name_a]), array(b.weights[name_b])
        if (one.dtype, one.shape) != (other.dtype, other.shape) or one.dtype == np.dtype(object):
            yield WeightDifference(name_a, name_b, (), reason, math.inf, False)
            continue
        flat = [value.reshape(len(value) if value.ndim else 1, -1) for value in (one, other)]
        step = max(1, _CHUNK // max(1, flat[0].shape[1]))
        rows: list[int] = []
        apart = 0.0
        for start in range(0, len(flat[0]), step):
            parts = [value[start : start + step] for value in flat]
            differs = bits_differ(*parts).any(axis=1)
            if differs.any():
                rows += [start + int(row) for row in np.flatnonzero(differs)]
                apart = max(apart, distances(*(part[differs] for part in parts))[0])
        scale = largest(one)
        yield WeightDifference(
            name_a,
            name_b,
            _some(rows) if one.ndim else (),
            reason,
            apart / scale if scale else math.inf,
            bool(np.array_equal(np.sort(one, axis=None), np.sort(other, axis=None))),
        )


def _some(rows: list[int]) -> tuple[int, ...]:
    """Return the first, the last and some rows in between."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)
    return tuple(rows[place] for place in places)


def weight_difference(a: Weighted, b: Weighted, found: Likeness) -> str | None:
    """Return the first weight that differs between models that are alike; None if none does."""
    reasons = (reason for *_, reason in _reasons(a, b, found))
    return next(reasons, None) or tensor_difference(a, b, found)


def tensor_difference(a: Weighted, b: Weighted, found: Likeness | None) -> str | None:
    """Return the first tensor in an attribute or a sub-graph that differs in models alike."""
    for label, one, other in () if found is None else found.tensors:
        if onnx.TensorProto.EXTERNAL in (one.data_location, other.data_location):
            continue
        arrays = numpy_helper.to_array(one), numpy_helper.to_array(other)
        reason = _compared(label, *arrays, (a.name, b.name))
        if reason is not None:
            return reason
    return None


def is_recast(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """Return whether one tensor may be the bytes of another, read as another type or shape.

    The types are the same, or those of one are bytes: uint8, and of the other of 8 bits or less an
    element.
    """
    if a.dtype == b.dtype:
        return tuple(a.shape) != tuple(b.shape) and a.size == b.size
    narrow = {a.dtype, b.dtype} - {ir.DataType.UINT8}
    if len(narrow) > 1 or not all(0 < int(t.dtype.bitwidth or 0) <= 8 for t in (a, b)):
        return False
    # What fills up the last byte does not count.
    return int(a.size) * int(a.dtype.bitwidth) == int(b.size) * int(b.dtype.bitwidth)


def same_values(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    """Return whether two tensors hold the same bits, in one type and shape or read as others.

    One that is converted is held against the other as it was before.

    Values that lie at the same place in the same file are not read.

    Raises:
        KvtoolError: If values cannot be read.
    """
    if isinstance(b, ConvertedTensor):
        return same_values(a, b.source)
    if isinstance(a, ConvertedTensor):
        return same_values(a.source, b)
    recast = is_recast(a, b)
    if not recast and (a.dtype, tuple(a.shape)) != (b.dtype, tuple(b.shape)):
        return False
    if a is b or place_of(a) == place_of(b) is not None:
        return True
    if recast:
        return bool(a.tobytes() == b.tobytes())
    return _compared("", array(a), array(b), ("", "")) is None


def _names(a: Weighted, b: Weighted, found: Likeness | None) -> list[tuple[str, str]]:
    if found is not None:
        known = ((x, y) for x, y in found.weights if x in a.weights and y in b.weights)
        # A rewrite replaces sizes, axes or indices by its own.
        return [
            (x, y)
            for x, y in known
            if x == y or not y.startswith(_MADE) or b.weights[y].dtype not in SIZES
        ]
    return [
        (name, name)
        for name, tensor in a.weights.items()
        if (other := b.weights.get(name)) is not None
        and (other.dtype, tuple(other.shape)) == (tensor.dtype, tuple(tensor.shape))
    ]


def _reasons(a: Weighted, b: Weighted, found: Likeness | None) -> Iterator[tuple[str, str, str]]:
    """Yield the names of each initializer that differs, and its first element that does."""
    for name_a, name_b in _names(a, b, found):
        one, other = a.weights[name_a], b.weights[name_b]
        if one is other or place_of(one) == place_of(other) is not None:
            continue
        # Whoever runs models whose values cannot be read meets the same.
        with suppress(KvtoolError):
            label, sides = f"initializer `{name_a}`", (a.name, b.name)
            if (reason := _compared(label, array(one), array(other), sides)) is not None:
                yield name_a, name_b, reason


def place_of(tensor: ir.TensorProtocol) -> tuple[Any, ...] | None:
    """Return where the bytes of an external tensor lie; None for any other."""
    if not isinstance(tensor, ir.ExternalTensor):
        return None
    return os.path.realpath(tensor.path), tensor.offset or 0, tensor.length


def _compared(label: str, a: Array, b: Array, sides: tuple[str, str]) -> str | None:
    """Return the first element of two weights that differs in a bit; chunk by chunk."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{label} is of dtype {b.dtype} and shape {b.shape}, not {a.dtype} and {a.shape}"
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, a.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        found = compare("", flat_a[part], flat_b[part], exact=True)
        if found.first_mismatch is not None:
            flat = start + found.first_mismatch.index[0]
            index = [int(i) for i in np.unravel_index(flat, a.shape)]
            return (
                f"{label} at {index} is {found.first_mismatch.actual} in {sides[1]}, "
                f"{found.first_mismatch.expected} in {sides[0]}"
            )
    return None
