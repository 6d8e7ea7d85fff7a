"""What `kvtool infer` answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from onnx_kvtool.core.location import Location
from onnx_kvtool.core.shown import Shown
from onnx_kvtool.symbolic.equalities import Equality
from onnx_kvtool.symbolic.knowledge import Conflict, Lost

__all__ = ["InferReport", "UnknownValue"]


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """A value of which something is unknown.

    Attributes:
        location: The value and the node that makes it.
        shape: What is known of its shape; None when its rank is unknown.
        lost: The first value that lost what is missing, and why.
    """

    location: Location
    shape: tuple[int | str | None, ...] | None
    lost: Lost

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; `node` and `op` are those of the node that lost it first."""
        first = self.lost.location
        return {
            "value": self.location.value,
            "node": first.node_label,
            "op": first.op,
            "why": self.lost.why,
            "code": self.lost.code,
            "first": first.value,
            "graph": self.location.graph,
            "shape": None if self.shape is None else list(self.shape),
        }


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

    @property
    def failed(self) -> bool:
        """Whether there is a conflict or, where the report is strict, an unknown value."""
        return bool(self.conflicts) or (self.strict and bool(self.unknown))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "model": self.model,
            "output": self.output,
            "values": self.values,
            "known_before": self.known_before,
            "known_after": self.known_after,
            "unknown": [value.to_json() for value in self.unknown],
            "conflicts": [_conflict(conflict) for conflict in self.conflicts],
            "equalities": [_equality(equality) for equality in self.equalities],
            "notes": list(self.notes),
        }


def _conflict(conflict: Conflict) -> dict[str, Any]:
    place = conflict.location
    return {
        "value": place.value,
        "node": place.node_label,
        "op": place.op,
        "graph": place.graph,
        "code": conflict.code,
        "declared": _listed(conflict.declared),
        "inferred": _listed(conflict.inferred),
        "message": conflict.message,
        "chain": list(conflict.chain),
    }


def _equality(equality: Equality) -> dict[str, Any]:
    place = equality.location
    return {
        "name": equality.name,
        "equals": equality.equals,
        "value": place.value,
        "node": place.node_label,
        "graph": place.graph,
        "why": equality.why,
    }


def _listed(given: tuple[int | str | None, ...] | str) -> list[int | str | None] | str:
    return given if isinstance(given, str) else list(given)
