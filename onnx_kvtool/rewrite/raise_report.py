"""What `raise` did, and what it lacked for what it did not do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_kvtool.core.choices import AttentionForm, AttentionMask
from onnx_kvtool.core.diagnostic import AT_NODE, AT_VALUE, Diagnostic, Location
from onnx_kvtool.core.record import Key, Record, filled, read, taken
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.rewrite.report import NOT_RUN, Phase, Verification
from onnx_kvtool.symbolic.dimensions import Dim, Dims

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
        mode: Whether positions wrap around.
        past: Name of the cache.
        update: Name of the value with the new rows.
        write_indices: Name of the value with the start of each sequence; None if all start at 0.
        present: Name of the updated cache.
        proof: Why this is equal, one sentence per step.
        assumed: The granted assumptions that the proof needs.

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

    JSON = (AT_NODE, ...)


@dataclass(frozen=True, slots=True)
class Unraised(Record):
    """A candidate that stays as it was.

    Attributes:
        location: Where it stands in the source model.
        code: Stable identifier of the reason.
        message: The missing fact, one sentence without a full stop.
        assumption: What to grant with `--assume` if it is true; None if nothing would help.

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
        AT_VALUE,
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
        past: Name of the cache input.
        present: Name of the cache output.
        capacity: Rows: a number or the name of a dimension; None if unknown.
        mode: Whether positions wrap around.
        source: The update in the source: of a `fixed` cache, a `concat` that grew it, ...
    """

    past: str
    present: str
    capacity: Dim
    mode: Mode
    source: CacheSource

    JSON = (..., Key("source", "from"))


@dataclass(frozen=True, slots=True)
class RaisedAttention(Record):
    """Attention of the source, in whatever nodes, that became one Attention.

    Attributes:
        location: Where its Softmax, or its one node, stood in the source model.
        form: Whether it reads the rows in use or the full capacity.
        mask: What replaces the mask of the source.
        proof: Why this is equal, one sentence per step.
    """

    location: Location
    form: AttentionForm
    mask: AttentionMask
    proof: tuple[str, ...]

    JSON = (AT_NODE, ...)


@dataclass(frozen=True, slots=True)
class Standardized(Record):
    """A node of another domain that became nodes of the default one.

    Attributes:
        location: Where it stood in the source model.
        rule: Name of the applied rule.
    """

    location: Location
    rule: str

    JSON = (AT_NODE, "rule")


@dataclass(frozen=True, slots=True)
class InputAdded(Record):
    """An input of the result that the source does not have.

    Attributes:
        name: Name.
        dtype: Its element type, as reports write it.
        shape: Its shape.
        meaning: What a caller must feed, as text.
    """

    name: str
    dtype: str
    shape: Dims
    meaning: str


@dataclass(frozen=True, slots=True)
class Refusal(Diagnostic):
    """What stays as it was, or keeps all else from being raised, as JSON has it.

    Attributes:
        location: Where it stands in the source model.
        code: Stable identifier of the reason.
        message: The missing fact, one sentence without a full stop.
        assumption: What to grant with `--assume` if it is true; null if nothing would help.
        blocks: Whether it prevents all raising.
        severity: Severity, mostly `error`.
        help: What to do about it; null without a remedy.
        lowest_opset: Lowest opset at which it could stay; null if none is known.
    """

    assumption: str | None = None
    blocks: bool = False

    JSON = (
        AT_VALUE,
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
        model: Path of the source model; `-` for standard input, "" for one in memory.
        output: Path of the written file; None if none.
        source_opset: Version of the default domain in the source.
        target_opset: Version of the default domain in the result; that of the source if nothing was
            raised.
        ir_version: IR version of the result.
        raised: Every update that became a TensorScatter, in the order of the source model.
        caches: Every cache with such an update.
        attention: Every attention that became one node.
        contrib: Every node of another domain that became a standard one.
        inputs_added: Inputs of the result that the source does not have.
        refused: Every candidate that stays as it was, in the order of the source model.
        blocked: Why nothing was raised although there are proven updates: what cannot be brought
            to the target opset, and what is wrong with the model as a whole.
        removed: Number of removed nodes, whose results nobody read.
        notes: Notes.
        verification: The comparison of result and source; of all `phases` together.
        phases: The models for the `--phases`; all other fields describe the first one.

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
        report: RaiseReport = filled(cls, data)
        said: tuple[Refusal, ...] = read(tuple[Refusal, ...], data.get("refused", ()))
        for r in said:
            if r.blocks:
                report.blocked.append(taken(Diagnostic, r))
            else:
                report.refused.append(taken(Unraised, r))
        return report

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Updates that kvtool did not raise, then other reasons that prevent raising."""
        return (
            *(
                Refusal(r.code, "error", r.location, r.message, assumption=r.assumption)
                for r in self.refused
            ),
            *(taken(Refusal, d, assumption=None, blocks=True) for d in self.blocked),
        )

    @property
    def is_changed(self) -> bool:
        """Whether the result is another model than the source."""
        return bool(self.raised or self.attention or self.contrib)

    @property
    def reasons(self) -> list[Diagnostic | Unraised]:
        """Why nothing was written, but for a result that is not equal."""
        return [*self.blocked, *self.refused]
