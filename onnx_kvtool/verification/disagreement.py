"""The differences between two models, and the earliest node whose values differ."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.domains import canonical_domain, default_version
from onnx_kvtool.core.reporting import Unnoticed
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.ops.schema import op_facts, same_version
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Arrays, RuntimeName
from onnx_kvtool.verification.comparison.differences import compare
from onnx_kvtool.verification.comparison.judge import Judge
from onnx_kvtool.verification.comparison.tolerances import Measure
from onnx_kvtool.verification.inputs.points import Directions
from onnx_kvtool.verification.planting import GraphView, HandedOut
from onnx_kvtool.verification.report import EarliestDifference
from onnx_kvtool.verification.shrinking.drawn_weights import keep, live
from onnx_kvtool.verification.subject import Subject
from onnx_kvtool.verification.weights import SIZES, Likeness, operator_of, weight_differences

# Differences between two models, and whether a run would show them.


_A = onnx.AttributeProto
_SKIPPED = frozenset({_A.GRAPH, _A.GRAPHS, _A.UNDEFINED})
"""Attributes that are not swapped: bodies are compared by what their node gives."""

_AXES = frozenset({"axis", "axes"})

_ROUNDING = 1e-3
"""A weight that differs by a smaller share of its largest value may have been rounded."""

_SMALL = 64
"""Elements of a weight whose values direct inputs."""


_Edit = Callable[[onnx.ModelProto, bool], None]


@dataclass(frozen=True, slots=True)
class Said:
    """A difference between the models.

    Attributes:
        location: Where A says it.
        reason: What differs, as text.
        edit: Makes the message of A or of B say what the other does.
        directs: What inputs are directed to.
        is_telling: Whether models that differ in it are different unless a run shows that they are
            not: a weight with other values.
        is_rounded: Whether it differs by no more than rounding may do.
        is_permuted: Whether it is a weight with its values in another order.
    """

    location: Location
    reason: str
    edit: _Edit
    directs: Directions
    is_telling: bool = False
    is_rounded: bool = False
    is_permuted: bool = False


class Watch(Judge):
    """Detects other outputs than those of the leader, without statistics."""

    is_changed = False
    is_beyond = False

    def fail(self, inputs: Arrays, error: RunFailed, where: str) -> None:
        """Note that the other model failed, which is a difference."""
        self.is_beyond = True

    def compare(self, inputs: Arrays, led: Arrays, found: Arrays, where: str) -> None:
        """Compare all outputs of one run that are not random."""
        for name, value in led.items():
            if name not in self.measure.random:
                seen = compare(name, value, found[name], self.measure.of(value, name))
                self.is_changed |= not seen.bit_equal
                self.is_beyond |= not seen.within


class Disagreement:
    """The differences between two models in weights of their main graphs and attributes of nodes.

    A run shows a difference if a model with this one part of the other gives other outputs. If A
    and B agree all the same, something else makes up for it, such as hidden units in another order.
    If the outputs stay the same, the runs prove nothing about the difference.

    Args:
        a: Model A.
        b: Model B.
        found: How the models correspond; None if they are not alike.
        with_attributes: Whether attributes are compared, which a rewrite may well change.

    Attributes:
        said: The differences.
        noticed: How many of them outputs show.
        unnoticed: Those that no output shows in these runs.
    """

    def __init__(
        self, a: Subject, b: Subject, found: Likeness | None, *, with_attributes: bool
    ) -> None:
        self._subjects = a, b
        self.said: list[Said] = []
        self.noticed = 0
        self.unnoticed: list[Unnoticed] = []
        weights = list(weight_differences(a, b, found))
        if not weights and (found is not None or not with_attributes):
            return
        messages = [onnx.ModelProto.FromString(subject.model) for subject in (a, b)]
        self._read = [live(message.graph) for message in messages]
        self.path = graph_path(messages[0].graph.name)
        for weight in weights:
            if weight.a in self._read[0] or weight.b in self._read[1]:
                tensors = a.weights[weight.a], b.weights[weight.b]
                self.said.append(
                    Said(
                        Location(self.path, value=weight.a),
                        weight.reason,
                        _swap_weight((weight.a, weight.b), tensors),
                        is_telling=tensors[0].dtype not in SIZES,
                        is_rounded=weight.share < _ROUNDING,
                        is_permuted=weight.is_permuted,
                        directs=replace(
                            _directions(tensors), ids={weight.a: weight.rows, weight.b: weight.rows}
                        ),
                    )
                )
        if with_attributes and found is None:
            self.said += self._attributes(*messages)

    @property
    def weight(self) -> str | None:
        """The first weight that differs, but for those that may be sizes; None if none does."""
        return next((said.reason for said in self.said if said.is_telling), None)

    @property
    def is_permuted(self) -> bool:
        """Whether the only difference is the order of values in weights."""
        return bool(self.said) and all(said.is_permuted for said in self.said)

    @property
    def directions(self) -> Directions:
        """Where inputs are directed."""
        ids: dict[str, tuple[int, ...]] = {}
        for said in self.said:
            ids.update({name: rows for name, rows in said.directs.ids.items() if rows})
        return Directions(
            ids,
            tuple(dict.fromkeys(v for said in self.said for v in said.directs.values)),
            tuple(dict.fromkeys(n for said in self.said for n in said.directs.lengths)),
        )

    def judge(
        self, run: Callable[[Subject], Watch], *, leads_b: bool, seconds: float
    ) -> str | None:
        """Give the model that leads each part of the other, and see whether runs show it.

        `run` runs the leader beside a copy of it with that part of the other. No further part is
        tried after `seconds`. Return why the models are different; None if they are not.
        """
        leader = self._subjects[int(leads_b)]
        detail = None
        end = time.monotonic() + seconds
        for said in self.said:
            why = "there was no time to see whether the runs show it"
            if time.monotonic() <= end:
                message = onnx.ModelProto.FromString(leader.model)
                said.edit(message, leads_b)
                try:
                    shown = run(replace(leader, model=message.SerializeToString(), _sessions={}))
                except RuntimeUnavailable:
                    continue  # no model with this part alone: another difference belongs to it
                if shown.is_beyond or (shown.is_changed and said.is_rounded):
                    self.noticed += 1
                    continue
                why = "no output shows it in these runs"
                if said.is_telling and not shown.is_changed:
                    detail = detail or f"{said.reason}; {why}"
                    continue
                if shown.is_changed:
                    why = "what outputs show of it lies within their tolerance"
            self.unnoticed.append(Unnoticed(said.location, f"{said.reason}; {why}"))
        return detail

    def _attributes(self, a: onnx.ModelProto, b: onnx.ModelProto) -> Iterator[Said]:
        """Yield the attributes that differ of nodes that compute the same value."""
        imports = ({entry.domain: entry.version for entry in m.opset_import} for m in (a, b))
        versions = [*map(default_version, imports)]
        ranks = _ranks(a.graph)
        sides = [subject.name for subject in self._subjects]
        for index, one, other in _pairs([*a.graph.node], [*b.graph.node]):
            if not set(one.output) & self._read[0]:
                continue
            if not canonical_domain(one.domain) and not same_version(one.op_type, *versions):
                continue
            spoken = [
                _spoken(node, version) for node, version in zip((one, other), versions, strict=True)
            ]
            for name in sorted({*spoken[0], *spoken[1]}):
                values = [said.get(name) for said in spoken]
                if name in _AXES:
                    values = [_counted_from_the_front(v, ranks.get(one.input[0])) for v in values]
                if values[0] != values[1]:
                    label = f"attribute `{name}` of node `{one.name or one.output[0]}`"
                    said_b, said_a = _text(values[1]), _text(values[0])
                    yield Said(
                        Location.of(self.path, one, index, one.output[0]),
                        f"{label} is {said_b} in {sides[1]}, {said_a} in {sides[0]}",
                        _swap_attribute(name, (one, other)),
                        directs=_directed(*values),
                    )


_Value = Any
"""What `onnx.helper.get_attribute_value` returns, made comparable."""

_Nodes = tuple[onnx.NodeProto, onnx.NodeProto]


def _pairs(
    a: Sequence[onnx.NodeProto], b: Sequence[onnx.NodeProto]
) -> Iterator[tuple[int, onnx.NodeProto, onnx.NodeProto]]:
    """Yield nodes of one operator that stand at one place, or give a value of one name.

    Other operators that both models have equally often are paired in order. A wrong pair does no
    harm: a run shows how its nodes differ.
    """
    if [node.op_type for node in a] == [node.op_type for node in b]:
        found = list(zip(a, b, strict=True))
    else:
        producers = {node.output[0]: node for node in b if node.output}
        named = ((node, producers.get(node.output[0])) for node in a if node.output)
        found = [(n, o) for n, o in named if o is not None and operator_of(n) == operator_of(o)]
        found += _in_order(a, b, found)
    places = {id(node): index for index, node in enumerate(a)}
    for one, other in found:
        if one.output and operator_of(one) == operator_of(other):
            yield places[id(one)], one, other


def _in_order(
    a: Sequence[onnx.NodeProto], b: Sequence[onnx.NodeProto], found: Sequence[_Nodes]
) -> Iterator[_Nodes]:
    """Yield pairs of nodes that are not paired yet."""
    paired = {id(node) for pair in found for node in pair}
    left = [defaultdict[tuple[str, str, str], list[onnx.NodeProto]](list) for _ in range(2)]
    for nodes, groups in zip((a, b), left, strict=True):
        for node in nodes:
            if id(node) not in paired:
                groups[operator_of(node)].append(node)
    for operator, nodes in left[0].items():
        if len(others := left[1][operator]) == len(nodes):
            yield from zip(nodes, others, strict=True)


def _spoken(node: onnx.NodeProto, version: int) -> dict[str, _Value]:
    """Return the attributes of a node by name, defaults included."""
    facts = op_facts(node.op_type, version, node.domain)
    known = {} if facts is None else facts.attributes
    found: dict[str, _Value] = {
        name: default for name, a in known.items() if (default := a.default) is not None
    }
    for attribute in node.attribute:
        if attribute.type in _SKIPPED or attribute.ref_attr_name:
            found.pop(attribute.name, None)
            continue
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, onnx.TensorProto | onnx.SparseTensorProto | onnx.TypeProto):
            value = value.SerializeToString(deterministic=True)
        elif not isinstance(value, int | float | str):
            value = tuple(
                part.decode(errors="replace") if isinstance(part, bytes) else part
                for part in value
                if isinstance(part, int | float | str | bytes)
            )
        found[attribute.name] = value
    return found


def _ranks(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the ranks that a graph declares, by the names of values."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    return ranks


def _counted_from_the_front(value: _Value, rank: int | None) -> _Value:
    """Return axes as non-negative numbers, if the rank is known."""
    if rank is None:
        return value
    if isinstance(value, tuple):
        return tuple(_counted_from_the_front(part, rank) for part in value)
    return value + rank if isinstance(value, int) and value < 0 else value


def _text(value: _Value) -> str:
    if value is None:
        return "left out"
    return "another tensor" if isinstance(value, bytes) else str(value)


def _directed(*values: _Value) -> Directions:
    numbers = [
        number
        for value in values
        for number in (value if isinstance(value, tuple) else (value,))
        if isinstance(number, int | float)
    ]
    whole = tuple(number for number in numbers if isinstance(number, int) and number > 0)
    return Directions(values=tuple(map(float, numbers)), lengths=whole)


def _directions(tensors: Sequence[ir.TensorProtocol]) -> Directions:
    """Return where the values of a small weight direct inputs."""
    if any(tensor.size > _SMALL or tensor.dtype == ir.DataType.STRING for tensor in tensors):
        return Directions()
    return _directed(
        *(
            tuple(
                array(t).reshape(-1).astype(float if t.dtype.is_floating_point() else int).tolist()
            )
            for t in tensors
        )
    )


def _swap_weight(
    names: tuple[str, str], tensors: tuple[ir.TensorProtocol, ir.TensorProtocol]
) -> _Edit:
    def edit(message: onnx.ModelProto, is_b: bool) -> None:
        name, other = names[int(is_b)], tensors[int(not is_b)]
        serialized = ir.serde.serialize_tensor(
            ir.Tensor(array(other), dtype=other.dtype, name=name)
        )
        for tensor in message.graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(serialized)

    return edit


def _swap_attribute(name: str, nodes: _Nodes) -> _Edit:
    def edit(message: onnx.ModelProto, is_b: bool) -> None:
        place = nodes[int(is_b)].output[0]
        node = next(n for n in message.graph.node if place in n.output[:1])
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        given = [a for a in nodes[int(not is_b)].attribute if a.name == name]
        keep(node.attribute, [*kept, *given])

    return edit


# The earliest node whose values differ.


_GROUP = 128
"""Values that are fetched at a time; so many of both models are held in memory."""

_ATTEMPTS = 64
"""Runs of each model that a search may take."""


def earliest_difference(
    a: Subject,
    b: Subject,
    inputs: Arrays,
    measure: Measure,
    runtime: RuntimeName,
    found: Likeness | None,
) -> tuple[EarliestDifference | None, str | None]:
    """Return the first value in the order of A that both models name and that differs.

    Values are those of the main graph, paired by position in models that are alike and by name in
    others; a value inside a body or a function is known by the node that holds it. Both models
    run with these values as outputs and without optimisation.

    Return the difference and None, or None and why none can be named.
    """
    views = GraphView(a), GraphView(b)
    common = [(name, name) for name in views[0].producers if name in views[1].producers]
    pairs = common if found is None else found.values
    if not pairs:
        return None, "no node can be named, as the models name no value in common"
    sides = [HandedOut(view, runtime, _ATTEMPTS) for view in views]
    for start in range(0, len(pairs), _GROUP):
        group = pairs[start : start + _GROUP]
        # Two values of A may correspond to one of B.
        of_a, of_b = (
            side.values([*dict.fromkeys(names)], [inputs])
            for side, names in zip(sides, zip(*group, strict=True), strict=True)
        )
        for one, other in group:
            if one not in of_a or other not in of_b or one in a.random or other in b.random:
                continue
            (value_a,), (value_b,) = of_a[one], of_b[other]
            if found is None and (value_a.shape, value_a.dtype) != (value_b.shape, value_b.dtype):
                continue  # same name, different meaning
            exact = measure.exact and not measure.is_given
            seen = compare(one, value_a, value_b, measure.of(value_a, one, other), exact=exact)
            if not seen.within:
                reason = (seen.reason or "").replace("output", "value", 1)
                places = views[0].location(one), views[1].location(other)
                return EarliestDifference(*places, seen.first_mismatch, reason), None
    if any(side.left < 0 for side in sides):
        return None, "no node can be named, as no runtime hands out the values between"
    return None, (
        "no node can be named: the values that both models name agree in the runs that expose them"
    )
