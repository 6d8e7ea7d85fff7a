"""What `raise` did, and what it lacked for what it did not do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_kvtool.core.choices import AttentionForm, AttentionMask
from onnx_kvtool.core.diagnostic import Diagnostic, Location, Severity
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.rewrite.report import NOT_RUN, Phase, Verification
from onnx_kvtool.symbolic.dimensions import Dim

CacheSource = Literal[
    "fixed", "concat", "rolling", "attention", "group_query_attention", "multi_head_attention"
]


@dataclass(frozen=True, slots=True)
class Raised(Record):
    """One update of the source model that became a TensorScatter.

    Attributes:
        location: Where the scatter (or Where, Add, Concat) stood in the source model.
        pattern: Name of the rule that proved it (`scatter_nd`, `concat`, ...).
        axis: The sequence axis of the cache.
        mode: Whether positions wrap.
        past: Name of the cache.
        update: Name of the value with the new rows.
        write_indices: Name of the value with the start of each sequence; None when every one is 0.
        present: Name of the updated cache.
        proof: Why this is equal, one sentence each.
        assumed: The assumptions that were needed, as they were granted.

    Examples:
        >>> _, report = kv.raise_("exported.onnx", verify=False)
        >>> first = report.raised[0]
        >>> first.pattern, first.axis, first.mode, first.past, first.present
        ('scatter_nd', 2, 'linear', 'key_cache.0', 'updated_key_cache.0')
    """

    location: Location
    pattern: str
    axis: int
    mode: Mode
    past: str
    update: str
    write_indices: str | None
    present: str
    proof: tuple[str, ...]
    assumed: tuple[str, ...] = ()

    JSON = (
        Key("location", parts=("graph", "node", "index", "op")),
        "pattern",
        "axis",
        "mode",
        "past",
        "update",
        "write_indices",
        "present",
        "proof",
        "assumed",
    )


@dataclass(frozen=True, slots=True)
class Unraised(Record):
    """A candidate that stays as it was.

    Attributes:
        location: Where it stands in the source model.
        code: Stable identifier of the reason.
        message: The missing fact, one sentence without a full stop.
        assumption: What to grant with `--assume` if it holds; None when nothing would help.

    Examples:
        >>> _, report = kv.raise_("positions.onnx", verify=False)
        >>> for candidate in report.refused:
        ...     print(candidate.code, candidate.assumption)
        free-positions contiguous:pos
    """

    location: Location
    code: str
    message: str
    assumption: str | None = None

    JSON = (
        Key("location", parts=("graph", "node", "index", "op", "value")),
        Key("code", "reason_code"),
        Key("message", "reason"),
        "assumption",
    )

    def __str__(self) -> str:
        return f"{self.code}: {self.location}: {self.message}"


@dataclass(frozen=True, slots=True)
class RaisedCache(Record):
    """One cache of the result that a TensorScatter updates.

    Attributes:
        past: Name of the cache before the step.
        present: Name of the cache after it.
        capacity: Rows that it holds: a number, or the name of a dimension; None when unknown.
        mode: Whether positions wrap.
        source: What updated it in the source: an update of a `fixed` cache, a `concat` that grew
            it, ...
    """

    past: str
    present: str
    capacity: Dim
    mode: Mode
    source: CacheSource

    JSON = ("past", "present", "capacity", "mode", Key("source", "from"))


@dataclass(frozen=True, slots=True)
class RaisedAttention(Record):
    """Attention of the source, in whatever nodes, that became one Attention.

    Attributes:
        location: Where its Softmax, or its one node, stood in the source model.
        form: Whether it reads the rows in use or the whole capacity.
        mask: What became of the mask of the source.
        proof: Why this is equal, one sentence each.
    """

    location: Location
    form: AttentionForm
    mask: AttentionMask
    proof: tuple[str, ...]

    JSON = (Key("location", parts=("graph", "node", "index", "op")), "form", "mask", "proof")


@dataclass(frozen=True, slots=True)
class Standardized(Record):
    """A node of another domain that became nodes of the default one.

    Attributes:
        location: Where it stood in the source model.
        rule: Name of the rule that rewrote it.
    """

    location: Location
    rule: str

    JSON = (Key("location", parts=("graph", "node", "index", "op")), "rule")


@dataclass(frozen=True, slots=True)
class InputAdded(Record):
    """An input of the result that the source does not have.

    Attributes:
        name: Its name.
        dtype: Its element type, as reports write it.
        shape: Its shape.
        meaning: What a caller has to feed, in words.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Refusal(Record):
    """What stays as it was, or keeps all else from being raised, as JSON has it.

    Attributes:
        location: Where it stands in the source model.
        code: Stable identifier of the reason.
        message: The missing fact, one sentence without a full stop.
        assumption: What to grant with `--assume` if it holds; null when nothing would help.
        blocks: Whether nothing is raised because of it.
        severity: How bad it is: `error` for most.
        help: What to do about it; null when there is nothing to suggest.
        lowest_opset: Lowest opset at which it could stay; null when none would help or none is
            known.
    """

    location: Location
    code: str
    message: str
    assumption: str | None = None
    blocks: bool = False
    severity: Severity = "error"
    help: str | None = None
    lowest_opset: int | None = None

    JSON = (
        Key("location", parts=("graph", "node", "index", "op", "value")),
        Key("code", "reason_code"),
        Key("message", "reason"),
        "assumption",
        "blocks",
        "severity",
        "help",
        "lowest_opset",
    )


@dataclass(slots=True)
class RaiseReport(Shown):
    """What `raise` did.

    Attributes:
        model: Path of the source model, `-` for standard input, or "" for one in memory.
        output: Path that was written; None when nothing was written.
        source_opset: Version of the default domain in the source.
        target_opset: Version of the default domain in the result; that of the source when nothing
            was raised.
        ir_version: IR version of the result.
        raised: Every update that became a TensorScatter, in the order of the source model.
        caches: Every cache that these update.
        attention: All attention that became one node.
        contrib: Every node of another domain that became standard.
        inputs_added: The inputs of the result that the source does not have.
        refused: Every candidate that stays as it was, in the order of the source model.
        blocked: Why nothing was raised although there are proven updates: what cannot be brought
            to the target opset, and what is wrong with the model as a whole.
        removed: Number of nodes that nobody reads any more and that were removed.
        notes: Remarks for people.
        verification: How the result compared with the source; of `phases` all of them together.
        phases: The models that were made, where `--phases` asked for several; all else is said of
            the first of them.

    Examples:
        >>> _, report = kv.raise_("exported.onnx", verify=False)
        >>> report.source_opset, report.target_opset, len(report.raised), len(report.refused)
        (18, 24, 4, 0)
    """

    model: str
    output: str | None
    source_opset: int
    target_opset: int
    ir_version: int
    raised: list[Raised] = field(default_factory=list)
    caches: list[RaisedCache] = field(default_factory=list)
    attention: list[RaisedAttention] = field(default_factory=list)
    contrib: list[Standardized] = field(default_factory=list)
    inputs_added: list[InputAdded] = field(default_factory=list)
    refused: list[Unraised] = field(default_factory=list)
    blocked: list[Diagnostic] = field(default_factory=list)
    removed: int = 0
    notes: list[str] = field(default_factory=list)
    verification: Verification = field(
        default_factory=lambda: Verification("skipped", detail=NOT_RUN)
    )
    phases: tuple[Phase, ...] = ()

    JSON = (
        "model",
        "output",
        "source_opset",
        "target_opset",
        "ir_version",
        "raised",
        "caches",
        "attention",
        "contrib",
        "inputs_added",
        Key("refusals", "refused"),
        Key("removed", "removed_nodes"),
        "notes",
        "verification",
        Key("phases", is_optional=True),
    )

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> RaiseReport:
        """Return the report that an object gives, with what is refused apart from what blocks."""
        from onnx_kvtool.core.record import filled, read

        report: RaiseReport = filled(cls, data)
        said: tuple[Refusal, ...] = read(tuple[Refusal, ...], data.get("refused", ()))
        for r in said:
            if r.blocks:
                found = Diagnostic(
                    r.code, r.severity, r.location, r.message, r.help, r.lowest_opset
                )
                report.blocked.append(found)
            else:
                report.refused.append(Unraised(r.location, r.code, r.message, r.assumption))
        return report

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Candidates that stay as they were, then what keeps all else from being raised."""
        return (
            *(Refusal(r.location, r.code, r.message, r.assumption) for r in self.refused),
            *(
                Refusal(
                    d.location, d.code, d.message, None, True, d.severity, d.help, d.lowest_opset
                )
                for d in self.blocked
            ),
        )

    @property
    def is_changed(self) -> bool:
        """Whether the result is another model than the source."""
        return bool(self.raised or self.attention or self.contrib)

    @property
    def reasons(self) -> list[Diagnostic | Unraised]:
        """Why nothing was written, but for a result that is not equal."""
        return [*self.blocked, *self.refused]
