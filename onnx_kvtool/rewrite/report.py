"""What a rewrite did, what it refused, and how its result was verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnx_kvtool.core.diagnostic import AT_NODE, AT_VALUE, Diagnostic, Location
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.record import Form, Key, Record, taken
from onnx_kvtool.core.reporting import Covered, Shown, Shrunken
from onnx_kvtool.core.words import counted

if TYPE_CHECKING:
    from onnx_kvtool.rewrite.raise_report import RaiseReport


NOT_RUN = "not run"
"""The status of a comparison that was not requested or not possible."""


@dataclass(frozen=True, slots=True)
class Lowered(Record):
    """One node of the source model that was rewritten.

    Attributes:
        location: Where the node stood in the source model.
        rule: Name of the rule (`tensor_scatter`, `function_body`, `inline`, `relabel`, ...).
        via: Chosen form if a rule has several (`scatternd`, `scatterelements`).

    Examples:
        >>> _, report = kv.lower("decoder.onnx", only=["TensorScatter"], verify=False)
        >>> first = report.lowered[0]
        >>> first.location.op, first.rule, first.via
        ('TensorScatter', 'tensor_scatter', 'scatternd')
    """

    location: Location
    rule: str
    via: str | None = None

    JSON = (AT_NODE, "rule", "via")


@dataclass(slots=True)
class Outcome:
    """What lowering or upgrading did to a model.

    Attributes:
        source_opset: Version of the default domain before.
        target_opset: Version of the default domain after.
        lowered: Every node that was rewritten, in order.
        refused: Why the model cannot be rewritten; the model is then fit for nothing else.
        notes: Notes.
    """

    source_opset: int
    target_opset: int
    lowered: list[Lowered] = field(default_factory=list)
    refused: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Verification(Record):
    """How the rewritten model compared with its source.

    Attributes:
        status: `equal`, `different`, or `skipped` (`detail` has the reason).
        runtime: `onnxruntime <version>` or `reference <version>`; None if skipped.
        cases: Number of seeded input sets.
        steps: Number of runs, decode steps included, over all cases.
        max_abs_diff: Largest absolute difference over all outputs that need not be bit-identical;
            0.0 if there are none; None if skipped.
        bit_equal: Names of the outputs that were bit-identical in every run.
        detail: One sentence: the first mismatch, or why verification was skipped.
        shrunken: What is smaller in the copies that ran instead of the models.
        covered: What the comparison covered; None if nothing ran.
        insufficient: Why the result is not written although no difference was found: with
            `--strict` what was not covered, or that the source fails; None otherwise.

    Examples:
        >>> _, report = kv.lower("decoder.onnx", only=["TensorScatter"])
        >>> report.verification.status, report.verification.cases, report.verification.steps
        ('equal', 4, 10)
        >>> len(report.verification.bit_equal)
        5
    """

    status: Literal["equal", "different", "skipped"]
    runtime: str | None = None
    cases: int = 0
    steps: int = 0
    max_abs_diff: float | None = None
    bit_equal: tuple[str, ...] = ()
    detail: str | None = None
    shrunken: tuple[Shrunken, ...] = ()
    covered: Covered | None = None
    insufficient: str | None = None

    @property
    def is_unproven(self) -> bool:
        """Whether the models were to be compared and could not be."""
        return self.status == "skipped" and self.detail != NOT_RUN

    @property
    def fails(self) -> bool:
        """Whether the result must not be written."""
        return self.status == "different" or self.insufficient is not None


@dataclass(frozen=True, slots=True)
class Phase(Record):
    """One of several static models that were made of one, for a number of new tokens.

    Attributes:
        name: Name, such as `prefill`.
        tokens: New tokens per step.
        output: Path of the written file; None if none.
        verification: Its comparison with the source.
    """

    name: str
    tokens: int
    output: str | None
    verification: Verification


@dataclass(frozen=True, slots=True)
class Refusal(Diagnostic):
    """A refusal as JSON has it.

    Attributes:
        location: Where it is.
        code: Stable identifier of the reason.
        message: What is wrong, one sentence without a full stop.
        lowest_opset: Lowest opset at which the node could stay or be lowered; null if none is
            known.
        severity: Always `error`.
        help: What to do about it; null without a remedy.
    """

    JSON = (
        AT_VALUE,
        Key("code", "reason_code"),
        Key("message", "reason"),
        "lowest_opset",
        "severity",
        "help",
    )


REFUSALS = Form(
    list[Refusal],
    lambda found: [taken(Refusal, one) for one in found],
    lambda said: [taken(Diagnostic, one) for one in said],
)
"""Refusals, under the names that the command-line contract gives to what is said of them."""


@dataclass(slots=True)
class LowerReport(Shown):
    """What `lower` did.

    Attributes:
        model: Path of the source model; `-` for standard input, "" for one in memory.
        output: Path of the written file; None if none.
        source_opset: Version of the default domain in the source.
        target_opset: Version of the default domain in the result.
        ir_version: IR version of the result.
        lowered: Every rewritten node, in the order of the source model.
        refused: Every reason why the model cannot be lowered; empty if it was.
        notes: Notes, such as domains that kvtool left unchanged.
        verification: The comparison of result and source; of all `phases` together.
        target: Target release (`onnxruntime 1.17.3`); None if an opset was given.
        phases: The models for the `--phases`; all other fields describe the first one.

    Examples:
        >>> _, report = kv.lower("decoder.onnx", opset=18, verify=False)
        >>> sorted({done.rule for done in report.lowered})
        ['attention', 'inline', 'rms_normalization', 'rotary_embedding', 'tensor_scatter']
        >>> report.to_json()["target_opset"]
        18
    """

    model: str
    output: str | None
    source_opset: int
    target_opset: int
    ir_version: int
    lowered: list[Lowered] = field(default_factory=list)
    refused: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verification: Verification = field(
        default_factory=lambda: Verification("skipped", detail=NOT_RUN)
    )
    target: str | None = None
    phases: tuple[Phase, ...] = ()

    JSON = (
        ...,
        "lowered",
        Key("refused", form=REFUSALS),
        "notes",
        "verification",
        Key("phases", is_optional=True),
    )

    @property
    def reasons(self) -> list[Diagnostic]:
        """Why nothing was written, but for a result that is not equal."""
        return self.refused


class Refused(KvtoolError):
    """A rewrite that was refused; nothing was written (exit 1).

    Attributes:
        report: What was refused and why.

    Examples:
        >>> try:
        ...     kv.lower("float8.onnx", opset=18)
        ... except kv.Refused as error:
        ...     for refusal in error.report.refused:
        ...         print(refusal.code, refusal.location, refusal.lowest_opset)
        element-type decoder, node `cache_0` (TensorScatter), value `past` 19
    """

    def __init__(self, report: LowerReport | RaiseReport) -> None:
        if report.verification.status == "different":
            message = f"the result was not equal to the source: {report.verification.detail}"
        elif report.verification.insufficient is not None:
            message = f"the result was not proven: {report.verification.insufficient}"
        else:
            refusals = report.reasons
            message = f"{counted(len(refusals), 'refusal')}, the first: {refusals[0]}"
        super().__init__(message)
        self.report = report
