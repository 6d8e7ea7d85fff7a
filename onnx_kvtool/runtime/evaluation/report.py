"""What came of evaluating a model or an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.shown import Shown
from onnx_kvtool.runtime.comparison.compare import Mask, bits_differ
from onnx_kvtool.runtime.evaluation.summary import Summary, TypeFacts, summarize
from onnx_kvtool.runtime.kernels.kernel import Array, Value
from onnx_kvtool.runtime.verification.report import OutputReport

__all__ = ["Comparison", "EvalReport", "TraceEntry", "Update"]


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One node that ran.

    Attributes:
        location: The node.
        outputs: What it made.
        seconds: Wall time that it took, its bodies included.
        runtime: `kvtool`, or `onnx.reference` for an operator without a kernel of our own.
        step: The run: 0 for the first, then the number of the decode step.
    """

    location: Location
    outputs: tuple[TypeFacts, ...]
    seconds: float
    runtime: str
    step: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "graph": self.location.graph,
            "node": self.location.node_label,
            "index": self.location.index,
            "op": self.location.op,
            "outputs": [output.to_json() for output in self.outputs],
            "seconds": self.seconds,
            "runtime": self.runtime,
            "step": self.step,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the outputs compare with those of another runtime on the same inputs.

    Attributes:
        status: `equal` if every output agrees within its tolerance, else `different`.
        runtime: The other runtime, whose values are the expected ones.
        outputs: Every output, over all runs.
    """

    status: Literal["equal", "different"]
    runtime: str
    outputs: tuple[OutputReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of the command-line contract."""
        return {
            "status": self.status,
            "runtime": self.runtime,
            "outputs": [output.to_json() for output in self.outputs],
        }


@dataclass(frozen=True, slots=True)
class Update:
    """A value before and after an operator wrote into it.

    Attributes:
        before: Name of the input.
        after: Name of the output.
        old: The input.
        new: The output, of the same shape and dtype.
    """

    before: str
    after: str
    old: Array = field(repr=False)
    new: Array = field(repr=False)

    @property
    def changed(self) -> Mask:
        """Which elements differ in a bit."""
        return bits_differ(self.old, self.new)

    def to_json(self) -> dict[str, Any]:
        """Return the names, and how many elements changed at which indices of each axis."""
        changed = self.changed
        return {
            "before": self.before,
            "after": self.after,
            "elements": int(changed.size),
            "changed": int(np.count_nonzero(changed)),
            "indices": [np.unique(axis).tolist() for axis in np.nonzero(changed)],
        }


@dataclass(slots=True)
class EvalReport(Shown):
    """What came of `kvtool eval`.

    Attributes:
        model: Path of the model, `-` for standard input, "" for one in memory; None for a single
            operator.
        operator: The operator, with `opset` its version of the default domain; None for a model.
        opset: The opset of a single operator; None for a model.
        runtime: What ran it, such as `reference 0.1.0`.
        seed: The seed of what was drawn; None when nothing was.
        steps: Decode steps after the first run.
        inputs: What the last run was fed.
        given: Names of the inputs whose first values were given, not drawn.
        trace: The nodes in the order in which they ran; empty unless asked for.
        comparison: None unless asked for.
        updates: Caches before and after, where scatters were asked for by name.
        warnings: Results that the specification leaves undefined, with the node; nodes that the
            file has in an order in which they cannot run.
        borrowed: The nodes that onnx.reference runs.
        saved: Path of the `.npz` file that was written; None when none was.
        values: What was fetched from the last run, by name, in order.
    """

    model: str | None
    operator: str | None
    opset: int | None
    runtime: str
    seed: int | None
    steps: int
    inputs: tuple[TypeFacts, ...]
    given: frozenset[str]
    trace: tuple[TraceEntry, ...] = ()
    comparison: Comparison | None = None
    updates: tuple[Update, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    borrowed: tuple[Location, ...] = ()
    saved: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict, repr=False)

    @property
    def outputs(self) -> tuple[Summary, ...]:
        """What is said of each value: made when asked for, as it takes longer than a copy."""
        return tuple(summarize(name, value) for name, value in self.values.items())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes, without the header."""
        return {
            "model": self.model,
            "operator": self.operator,
            "opset": self.opset,
            "runtime": self.runtime,
            "seed": self.seed,
            "steps": self.steps,
            "inputs": [{**i.to_json(), "given": i.name in self.given} for i in self.inputs],
            "outputs": [output.to_json() for output in self.outputs],
            "trace": [entry.to_json() for entry in self.trace],
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "updates": [update.to_json() for update in self.updates],
            "warnings": [_diagnostic(warning) for warning in self.warnings],
            "borrowed": [_place(location) for location in self.borrowed],
            "saved": self.saved,
        }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "location": diagnostic.location.to_json(),
    }


def _place(location: Location) -> dict[str, Any]:
    place: dict[str, Any] = location.to_json()
    del place["value"]
    return place
