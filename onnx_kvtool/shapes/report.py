"""What `kvtool infer` answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.symbolic.broadcasting import Equality
from onnx_kvtool.symbolic.knowledge import Conflict, Lost

__all__ = ["InferReport", "UnknownValue"]


@dataclass(frozen=True, slots=True)
class UnknownValue(Record):
    """A value of which something is unknown.

    In JSON, `node` and `op` are those of the node that lost it first.

    Attributes:
        location: The value and the node that makes it.
        shape: What is known of its shape; None when its rank is unknown.
        lost: The first value that lost what is missing, and why.
    """

    location: Location
    shape: tuple[int | str | None, ...] | None
    lost: Lost

    JSON = (
        Key("location.value", "value"),
        Key("lost.location.node_label", "node"),
        Key("lost.location.op", "op"),
        Key("lost.why", "why"),
        Key("lost.code", "code"),
        Key("lost.location.value", "first"),
        Key("location.graph", "graph"),
        "shape",
        "location",
        "lost",
    )


@dataclass(slots=True)
class InferReport(Shown):
    """What was found of the types and shapes of a model.

    Attributes:
        model: Path as it was given; `-` for standard input, "" for a model made in memory.
        values: Values of the main graph and of all bodies: inputs, and outputs of nodes.
        known_before: How many of them the file declares fully, with a type and every size.
        known_after: How many are fully known now. A size is known when it is a number or an
            expression over names that inputs of the model declare.
        unknown: The others, in the order of the graph.
        conflicts: What contradicts itself.
        equalities: Names, and expressions over names, that stand for one size.
        notes: What else there is to say.
        output: Path of the file that was written; None when none was.
        strict: Whether nothing may stay unknown.

    Examples:
        >>> _, report = kv.infer("decoder.onnx", dims={"batch": 2})
        >>> report.known_after == report.values, len(report.conflicts)
        (True, 0)
    """

    model: str
    values: int
    known_before: int
    known_after: int
    unknown: tuple[UnknownValue, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    equalities: tuple[Equality, ...] = ()
    notes: list[str] = field(default_factory=list)
    output: str | None = None
    strict: bool = False

    JSON = (
        "model", "output", "values", "known_before", "known_after", "unknown", "conflicts",
        "equalities", "notes", "strict",
    )  # fmt: skip

    @property
    def failed(self) -> bool:
        """Whether there is a conflict or, where the report is strict, an unknown value."""
        return bool(self.conflicts) or (self.strict and bool(self.unknown))
