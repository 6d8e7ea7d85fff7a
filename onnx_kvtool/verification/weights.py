"""Whether two models are the same but for names and weights, and weights compared."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.model_io.stored import ConvertedTensor
from onnx_kvtool.runtime.sessions import Array
from onnx_kvtool.verification.comparison.compare import bits_differ, compare, distances, largest
from onnx_kvtool.verification.subject import Subject

# Whether two models are the same but for names and the values of their weights.


_A = onnx.AttributeProto


@dataclass(slots=True)
class Likeness:
    """How the parts of two models that are alike correspond.

    Attributes:
        values: Name in A and name in B of each node output of the main graph, in order.
        weights: Name in A and name in B of each initializer of the main graph.
        tensors: The tensors in attributes and in sub-graphs, A's and B's, with what to call them.
    """

    values: list[tuple[str, str]] = field(default_factory=list)
    weights: list[tuple[str, str]] = field(default_factory=list)
    tensors: list[tuple[str, onnx.TensorProto, onnx.TensorProto]] = field(default_factory=list)


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
    pairing = _Pairing()
    try:
        pairing.models(a, b)
    except _Unlike:
        return None
    return pairing.found


class _Unlike(Exception):
    """The two models do different operations."""


class _Pairing:
    """Walks two models in step."""

    def __init__(self) -> None:
        self.found = Likeness()

    def models(self, a: onnx.ModelProto, b: onnx.ModelProto) -> None:
        _same(_imports(a.opset_import), _imports(b.opset_import))
        functions = [
            {(f.domain, f.name, f.overload): f for f in model.functions} for model in (a, b)
        ]
        _same(functions[0].keys(), functions[1].keys())
        for key, function in functions[0].items():
            self._functions(function, functions[1][key])
        self._graphs(a.graph, b.graph, {"": ""}, is_main=True)

    def _functions(self, a: onnx.FunctionProto, b: onnx.FunctionProto) -> None:
        _same(_imports(a.opset_import), _imports(b.opset_import))
        _same(list(a.attribute), list(b.attribute))
        _same(len(a.attribute_proto), len(b.attribute_proto))
        names = {"": ""}
        _bind(a.input, b.input, names)
        for one, other in zip(a.attribute_proto, b.attribute_proto, strict=True):
            self._attributes(one, other, names, f"function `{a.name}`")
        self._nodes(a.node, b.node, names)
        _same([names.get(name) for name in a.output], list(b.output))

    def _graphs(
        self, a: onnx.GraphProto, b: onnx.GraphProto, names: dict[str, str], *, is_main: bool
    ) -> None:
        """Pair two graphs; `names` maps A's names to B's, those of enclosing graphs included."""
        _bind([v.name for v in a.input], [v.name for v in b.input], names)
        self._initializers(a, b, names, is_main=is_main)
        if a.sparse_initializer or b.sparse_initializer:
            raise _Unlike
        outputs = self._nodes(a.node, b.node, names)
        if is_main:
            self.found.values += outputs
        _same([names.get(v.name) for v in a.output], [v.name for v in b.output])

    def _initializers(
        self, a: onnx.GraphProto, b: onnx.GraphProto, names: dict[str, str], *, is_main: bool
    ) -> None:
        """Pair initializers by their uses, since a name may have changed."""
        own_a = {tensor.name: tensor for tensor in a.initializer}
        own_b = {tensor.name: tensor for tensor in b.initializer}
        for one, other in zip(a.node, b.node, strict=False):
            for name, counterpart in zip(one.input, other.input, strict=False):
                if name in own_a and counterpart in own_b:
                    names.setdefault(name, counterpart)
        for name, tensor in own_a.items():
            # One that only a body or an output names.
            counterpart = own_b.get(names.setdefault(name, name))
            if counterpart is None:
                raise _Unlike
            _same(
                (tensor.data_type, list(tensor.dims)),
                (counterpart.data_type, list(counterpart.dims)),
            )
            if is_main:
                self.found.weights.append((name, counterpart.name))
            else:
                self.found.tensors.append((f"initializer `{name}`", tensor, counterpart))
        _same(len(own_a), len(own_b))

    def _nodes(
        self,
        a: Sequence[onnx.NodeProto],
        b: Sequence[onnx.NodeProto],
        names: dict[str, str],
    ) -> list[tuple[str, str]]:
        _same(len(a), len(b))
        outputs: list[tuple[str, str]] = []
        for one, other in zip(a, b, strict=True):
            _same(operator_of(one), operator_of(other))
            _same([names.get(name) for name in one.input], list(other.input))
            attributes = {attribute.name: attribute for attribute in other.attribute}
            _same({attribute.name for attribute in one.attribute}, attributes.keys())
            for attribute in one.attribute:
                label = f"attribute `{attribute.name}` of node `{one.name or one.output[0]}`"
                self._attributes(attribute, attributes[attribute.name], names, label)
            _bind(one.output, other.output, names)
            outputs += [(x, y) for x, y in zip(one.output, other.output, strict=True) if x]
        return outputs

    def _attributes(
        self,
        a: onnx.AttributeProto,
        b: onnx.AttributeProto,
        names: dict[str, str],
        label: str,
    ) -> None:
        _same((a.type, a.ref_attr_name), (b.type, b.ref_attr_name))
        if a.type == _A.GRAPH and not a.ref_attr_name:
            self._graphs(a.g, b.g, dict(names), is_main=False)
        elif a.type == _A.GRAPHS:
            _same(len(a.graphs), len(b.graphs))
            for one, other in zip(a.graphs, b.graphs, strict=True):
                self._graphs(one, other, dict(names), is_main=False)
        elif a.type == _A.TENSOR and not a.ref_attr_name:
            _same((a.t.data_type, list(a.t.dims)), (b.t.data_type, list(b.t.dims)))
            self.found.tensors.append((label, a.t, b.t))
        else:
            _same(_bytes(a), _bytes(b))


def _bind(a: Iterable[str], b: Iterable[str], names: dict[str, str]) -> None:
    """Let each name of `a` stand for the one of `b` at the same position."""
    one, other = list(a), list(b)
    _same(len(one), len(other))
    for name, counterpart in zip(one, other, strict=True):
        _same(bool(name), bool(counterpart))
        names[name] = counterpart


def _same(a: object, b: object) -> None:
    if a != b:
        raise _Unlike


def operator_of(node: onnx.NodeProto) -> tuple[str, str, str]:
    """Return domain, type and overload of a node."""
    return canonical_domain(node.domain), node.op_type, node.overload


def _imports(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {canonical_domain(entry.domain): entry.version for entry in imports}


def _bytes(attribute: onnx.AttributeProto) -> bytes:
    bare = onnx.AttributeProto()
    bare.CopyFrom(attribute)
    bare.ClearField("doc_string")
    data: bytes = bare.SerializeToString(deterministic=True)
    return data


# Weights that two models share, compared with each other.


_CHUNK = 1 << 24
"""Elements that are compared at a time."""

SIZES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.STRING})
"""Types of constants that a rewrite may well change: shapes, axes, indices, masks."""

_MOST_ROWS = 5
"""Rows that are named of a weight that differs."""

_MADE = "kvtool/"
"""How the names of constants begin that a rewrite makes."""


class Weighted(Protocol):
    """A model with known weights."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def weights(self) -> Mapping[str, ir.TensorProtocol]:
        """The initializers of its main graph, by name."""
        ...


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
    for name_a, name_b in _names(a, b, found):
        one, other = a.weights[name_a], b.weights[name_b]
        reason = _difference(f"initializer `{name_a}`", one, other, (a.name, b.name))
        if reason is not None:
            yield _described(
                WeightDifference(name_a, name_b, (), reason, math.inf, False), one, other
            )


def _described(
    found: WeightDifference, a: ir.TensorProtocol, b: ir.TensorProtocol
) -> WeightDifference:
    """Return the difference with all that follows from the values."""
    one, other = array(a), array(b)
    if (one.dtype, one.shape) != (other.dtype, other.shape) or one.dtype == np.dtype(object):
        return found
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
    return replace(
        found,
        rows=_some(rows) if one.ndim else (),
        share=apart / scale if scale else math.inf,
        is_permuted=bool(np.array_equal(np.sort(one, axis=None), np.sort(other, axis=None))),
    )


def _some(rows: list[int]) -> tuple[int, ...]:
    """Return the first, the last and some rows in between."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)
    return tuple(rows[place] for place in places)


def weight_difference(a: Weighted, b: Weighted, found: Likeness) -> str | None:
    """Return the first weight that differs between models that are alike; None if none does."""
    for name_a, name_b in _names(a, b, found):
        label, sides = f"initializer `{name_a}`", (a.name, b.name)
        reason = _difference(label, a.weights[name_a], b.weights[name_b], sides)
        if reason is not None:
            return reason
    return tensor_difference(a, b, found)


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
    return bool(tensor_bits(a) == tensor_bits(b))


def tensor_bits(tensor: ir.TensorProtocol) -> int:
    """Return how many bits the elements of a tensor take, without what fills up the last byte."""
    return int(tensor.size) * int(tensor.dtype.bitwidth)


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
        return [
            (x, y)
            for x, y in found.weights
            if x in a.weights and y in b.weights and not _is_made(x, y, b.weights[y])
        ]
    return [
        (name, name)
        for name, tensor in a.weights.items()
        if (other := b.weights.get(name)) is not None
        and (other.dtype, tuple(other.shape)) == (tensor.dtype, tuple(tensor.shape))
    ]


def _is_made(name: str, other: str, tensor: ir.TensorProtocol) -> bool:
    """Return whether a rewrite replaced sizes, axes or indices by its own."""
    return name != other and other.startswith(_MADE) and tensor.dtype in SIZES


def _difference(
    label: str, a: ir.TensorProtocol, b: ir.TensorProtocol, sides: tuple[str, str]
) -> str | None:
    if a is b or place_of(a) == place_of(b) is not None:
        return None
    try:
        return _compared(label, array(a), array(b), sides)
    except KvtoolError:
        return None  # values that cannot be read; whoever runs the models meets the same


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
