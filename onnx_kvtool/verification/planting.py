"""Rewritten places as extra outputs of copies, and planted mistakes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.reporting import Place
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.model_io.verbatim import every_node
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Array, Arrays, RuntimeName, Session, open_session
from onnx_kvtool.verification.comparison.differences import Tolerance, largest
from onnx_kvtool.verification.comparison.tolerances import Measure
from onnx_kvtool.verification.report import Settings
from onnx_kvtool.verification.subject import Subject
from onnx_kvtool.verification.weights import operator_of

# The values that two models have in common, and the places where one of them was rewritten.


@dataclass
class GraphView:
    """The message of a model, with the producer of each value of its main graph.

    Attributes:
        subject: The model.
        proto: Its message, which may be edited.
        producers: Position and node of each value that a node of the main graph computes.
    """

    subject: Subject

    def __post_init__(self) -> None:
        self.proto = onnx.ModelProto.FromString(self.subject.model)
        self.producers: dict[str, tuple[int, onnx.NodeProto]] = {
            name: (index, node)
            for index, node in enumerate(self.proto.graph.node)
            for name in node.output
            if name
        }

    def location(self, value: str) -> Location:
        """Return the node that computes a value."""
        index, node = self.producers[value]
        path = graph_path(self.proto.graph.name)
        return Location.of(path, node, index - self.subject.casts, value)


def corresponding(a: GraphView, b: GraphView, settings: Settings) -> dict[str, str]:
    """Return the name in B of each value of A that corresponds to one of B, in the order of A.

    Values of one name correspond. If most names differ, values correspond whose nodes `kvtool diff`
    matches.
    """
    common = {name: name for name in a.producers if name in b.producers}
    if settings.matching is None or 2 * len(common) >= len(a.producers):
        return common
    matched = settings.matching()
    pairs = {name: matched.get(name, name) for name in a.producers}
    return {name: other for name, other in pairs.items() if other in b.producers}


def places_between(a: GraphView, b: GraphView, settings: Settings) -> list[Place]:
    """Return the rewritten places between A and B.

    A place is a value that the main graphs of both models compute in different ways: by another
    operator, with other attributes, bodies or inputs, by a function with another body, or from a
    weight with other values. In both models the same nodes compute all other values from these.

    If B was made of A, weights of the same name have the same values.
    """
    functions = _other_functions(a.proto, b.proto)
    random = a.subject.random | b.subject.random
    reads = _Reads(a, b, corresponding(a, b, settings), are_weights_right=settings.is_a_right)
    return [
        Place(name, other, a.location(name))
        for name, other in reads.names.items()
        if random.isdisjoint((name, other))
        and (
            operator_of(a.producers[name][1]) in functions
            or not reads.is_same(a.producers[name][1], b.producers[other][1])
        )
    ]


class _Reads:
    """Decides whether nodes of two models compute the same from the same values."""

    def __init__(
        self, a: GraphView, b: GraphView, names: dict[str, str], *, are_weights_right: bool
    ) -> None:
        self.names = names
        self._weights_a = {tensor.name: tensor for tensor in a.proto.graph.initializer}
        self._weights_b = {tensor.name: tensor for tensor in b.proto.graph.initializer}
        self._are_weights_right = are_weights_right
        self._is_one = functools.cache(self._has_same_values)

    def is_same(self, a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
        """Return whether two nodes have one operator, attributes and inputs."""
        if self._are_weights_right and a == b:
            return True
        if operator_of(a) != operator_of(b) or len(a.input) != len(b.input):
            return False
        if [self.names.get(name, name) for name in a.output] != list(b.output):
            return False
        one, other = ({given.name: given for given in node.attribute} for node in (a, b))
        return one == other and all(map(self._is_one, a.input, b.input))

    def _has_same_values(self, a: str, b: str) -> bool:
        one, other = self._weights_a.get(a), self._weights_b.get(b)
        if one is None or other is None:
            return one is other and self.names.get(a, a) == b
        if a == b:
            return self._are_weights_right or one == other
        renamed = onnx.TensorProto()
        renamed.CopyFrom(one)
        renamed.name = other.name
        return bool(renamed == other)


def _other_functions(a: onnx.ModelProto, b: onnx.ModelProto) -> set[tuple[str, str, str]]:
    """Return the functions of A whose nodes, or nodes of functions that they call, differ in B."""
    known, others = (
        {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
        for model in (a, b)
    )
    found = {
        key
        for key, function in known.items()
        if key not in others or list(function.node) != list(others[key].node)
    }
    size = -1
    while size != len(found):  # once for each level of calls
        size = len(found)
        found |= {
            key
            for key, function in known.items()
            if any(operator_of(node) in found for node in every_node(function))
        }
    return found


# Copies of a model with inner values as outputs, and inputs that plant mistakes there.


_T = onnx.TensorProto

_SHARE = 0.125
"""Part of the largest magnitude of a value that a planted mistake moves each of its elements by."""

_OLDEST = 7
"""The first opset where Sub and Xor broadcast as they do today."""

_THROUGH: Mapping[str, tuple[int, npt.DTypeLike]] = {
    "float32": (_T.FLOAT, np.float32),
    "float64": (_T.DOUBLE, np.float64),
    "int32": (_T.INT32, np.int32),
    "int64": (_T.INT64, np.int64),
    "bool": (_T.BOOL, np.bool_),
    **dict.fromkeys(("float16", "bfloat16"), (_T.FLOAT, np.float32)),
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), (_T.INT32, np.int32)),
    **dict.fromkeys(("uint32", "uint64"), (_T.INT64, np.int64)),
}
"""By the dtype of a value, the type for subtracting a mistake from it. Runtimes subtract few
types, and a value of any other type comes back from this one with the same bits."""


def handing_out(view: GraphView, names: Collection[str]) -> bytes:
    """Return a model with `names` as further outputs; no message is serialised again.

    A message that follows another one is merged into it, which adds outputs to those that it has.
    """
    given = {value.name for value in view.proto.graph.output}
    more = onnx.ModelProto()
    # A value info without a type is filled in by either runtime.
    more.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in given)
    data: bytes = view.subject.model + more.SerializeToString()
    return data


@dataclass
class HandedOut:
    """Fetches values from copies of a model, which run without optimisation.

    Attributes:
        view: The model.
        runtime: What runs it.
        left: How often it may be loaded still: values that no runtime hands out are found by
            halving. Below zero if that was not enough.
    """

    view: GraphView
    runtime: RuntimeName
    left: int

    def values(self, names: Sequence[str], runs: Sequence[Arrays]) -> dict[str, list[Array]]:
        """Return values in all runs; those that no runtime hands out are left out."""
        if not names:
            return {}
        self.left -= 1
        if self.left < 0:
            return {}
        data, subject = handing_out(self.view, names), self.view.subject
        try:
            session = open_session(self.runtime, data, subject.directory, optimize=False)
            del data
            found = [session.run(subject.fed(inputs)) for inputs in runs]
        except (RunFailed, RuntimeUnavailable):
            half = len(names) // 2
            if not half:
                return {}
            return {**self.values(names[:half], runs), **self.values(names[half:], runs)}
        return {name: [run[name] for run in found] for name in names}


def port(name: str) -> str:
    """Return the name of the input that plants a mistake in a value."""
    return f"{name}.kvtool_mistake"


def open_to_mistakes(
    view: GraphView, names: Collection[str], dtypes: Mapping[str, np.dtype[Any]]
) -> tuple[bytes, frozenset[str]]:
    """Return a model with `names` as outputs, and inputs that are subtracted from them.

    Each value of `dtypes` has an input more, `port(name)`, whose default of zero changes no bit of
    the value. One that is fed moves the value for all that read it, bodies and outputs included.

    Return the model, and the values that have such an input.
    """
    model = onnx.ModelProto.FromString(view.subject.model)
    graph = model.graph
    versions = [entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS]
    is_recent = min(versions, default=0) >= _OLDEST
    ports = {n: d.name for n, d in dtypes.items() if is_recent and d.name in _THROUGH}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in ports:
                node.output[index] = f"{name}.kvtool_right"
                nodes += _moved(name, ports[name])
    moved = onnx.GraphProto(node=nodes)
    graph.ClearField("node")
    graph.MergeFrom(moved)
    for name, dtype in ports.items():
        type_, numpy_type = _THROUGH[dtype]
        graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((), numpy_type), port(name)))
        graph.input.append(onnx.helper.make_tensor_value_info(port(name), type_, None))
    given = {value.name for value in graph.output}
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in given)
    data: bytes = model.SerializeToString()
    return data, frozenset(ports)


def _moved(name: str, dtype: str) -> list[onnx.NodeProto]:
    """Return nodes that compute `name` of what its producer gives and of its input."""
    make = onnx.helper.make_node
    right, (through, numpy_type) = f"{name}.kvtool_right", _THROUGH[dtype]
    if np.dtype(numpy_type).name == dtype:
        return [make("Xor" if dtype == "bool" else "Sub", [right, port(name)], [name])]
    wide, moved = f"{name}.kvtool_wide", f"{name}.kvtool_moved"
    return [
        make("Cast", [right], [wide], to=through),
        make("Sub", [wide, port(name)], [moved]),
        make("Cast", [moved], [name], to=_T.DataType.Value(dtype.upper())),
    ]


def mistake(value: Array) -> Array | None:
    """Return the input that plants a mistake in `value`; None if its type allows none.

    Each float moves by an eighth of the largest magnitude (by 1/8 if all are zero), up or down at
    random: a softmax or a normalisation hides a move of all elements alike. Infinity becomes NaN.
    Integers grow by one. The first column of a mask is inverted.
    """
    if value.dtype.name not in _THROUGH or not value.size:
        return None
    dtype = np.dtype(_THROUGH[value.dtype.name][1])
    if dtype.kind == "b":
        columns = np.zeros(value.shape, np.bool_)
        columns[(..., slice(1)) if value.ndim else ...] = True
        return columns
    if dtype.kind == "i":
        return np.full((), -1, dtype)
    step = _SHARE * (largest(value) or 1.0)
    signs = np.random.default_rng(value.size).choice([-1.0, 1.0], value.shape)
    planted = np.asarray(step * signs, dtype)
    return np.where(np.isinf(value), value.astype(dtype), planted)


def difference(value: Array, wanted: Array) -> Array | None:
    """Return the input that makes a value `wanted`; None if its type allows no mistake.

    Elements that are not finite stay as they are.
    """
    if value.dtype.name not in _THROUGH:
        return None
    dtype = np.dtype(_THROUGH[value.dtype.name][1])
    if dtype.kind == "b":
        return np.asarray(np.logical_xor(value, wanted))
    with np.errstate(all="ignore"):
        planted: Array = np.subtract(value.astype(dtype), wanted.astype(dtype))
        return np.where(np.isfinite(value.astype(np.float64)), planted, np.zeros((), dtype))


def is_seen(value: Array, tolerance: Tolerance) -> bool:
    """Return whether a mistake that is planted in `value` goes beyond `tolerance` somewhere."""
    if tolerance.atol == 0.0 == tolerance.rtol or value.dtype.name not in _THROUGH:
        return bool(value.size)  # compared bit for bit
    magnitudes = np.abs(value.astype(np.float64))
    if np.isinf(magnitudes).any():
        return True  # infinity is compared as it is
    magnitudes = magnitudes[~np.isnan(magnitudes)]
    if not magnitudes.size:
        return False
    step = _SHARE * (float(magnitudes.max()) or 1.0)
    return step > tolerance.atol + tolerance.rtol * float(magnitudes.min())


# The inputs of the runs that compared two models.


_RUNS = 2
"""Runs that are looked into by default: the first, and the decode step behind it."""

_RECORDED = 16
"""The part of the memory of a comparison that inputs of recorded runs may take."""

_PART = 1 << 16
"""Elements of an output that are looked at to see whether a mistake in it would be noticed."""


class Recorder:
    """A session that keeps what it was fed in its first runs.

    Args:
        session: The session of the model that follows, which is only run where both are compared.
        memory: Bytes that the comparison may take.
        measure: How close outputs have to be.
        is_live: Whether no row of a run holds padding; runs with padding are kept if there is no
            other.
        is_every: Whether all runs are kept that fit into the memory, not only the first ones.

    Attributes:
        runs: The inputs.
        runtime: Name and version of what runs the model.
        last: The inputs of the last run, unless they are too large to be kept; looked at where the
            others say nothing.
        lit: Outputs that would have shown a mistake.
    """

    def __init__(
        self,
        session: Session,
        memory: int,
        measure: Measure,
        is_live: Callable[[Arrays], bool],
        *,
        is_every: bool = False,
    ) -> None:
        self._session: Session | None = session
        self.runtime = session.runtime
        self._left = memory // _RECORDED
        self._measure = measure
        self._is_live = is_live
        self._is_every = is_every
        self.runs: list[Arrays] = []
        self._is_padded = False
        self.last: Arrays | None = None
        self.lit: set[str] = set()

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model and record the inputs."""
        assert self._session is not None, "the recorder has let go of its session"
        outputs = self._session.run(inputs)
        fed = dict(inputs)
        if self._is_every or self._is_padded or len(self.runs) < _RUNS:
            self._keep(fed)
        elif self._is_live(fed):
            self.last = fed if total_bytes(fed) <= self._left else None
        for name in outputs.keys() - self.lit - self._measure.random:
            part = outputs[name].reshape(-1)[:_PART]
            if is_seen(part, self._measure.of(part, name)):
                self.lit.add(name)
        return outputs

    def unload(self) -> None:
        """Hold the session no more, which is not run again."""
        self._session = None

    def _keep(self, inputs: Arrays) -> None:
        is_live = self._is_live(inputs)
        if self.runs and not is_live:
            return
        if self.runs and self._is_padded:
            self._left += total_bytes(self.runs.pop())
        needed = total_bytes(inputs)
        if not self.runs or needed <= self._left:
            self._left -= needed
            self.runs.append(inputs)
            self._is_padded = not is_live


def total_bytes(inputs: Arrays) -> int:
    """Return the total bytes of arrays."""
    return sum(array.nbytes for array in inputs.values())
