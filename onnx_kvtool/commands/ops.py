"""`kvtool ops`: its request, and the facts of an operator."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.commands.requests import OpsRequest
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.record import Record, taken
from onnx_kvtool.core.words import did_you_mean
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS, DOMAIN
from onnx_kvtool.ops.schema import NEWEST, OpFacts, has_body, op_history, operators
from onnx_kvtool.ops.traits import Trait, traits_of
from onnx_kvtool.rewrite.lowering.early.steps import STEPS, rules_of
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.raising.raisings import RAISINGS
from onnx_kvtool.rewrite.upgrading.upgrades import UPGRADES
from onnx_kvtool.runtime.kernels.table import KERNELS
from onnx_kvtool.targets.releases import releases


@dataclass(frozen=True, slots=True)
class ParameterEntry(Record):
    """One formal input or output.

    Attributes:
        name: Name in the schema.
        optional: Whether it may be absent.
        variadic: Whether it accepts any number of values.
    """

    name: str
    optional: bool
    variadic: bool


@dataclass(frozen=True, slots=True)
class AttributeEntry(Record):
    """One attribute.

    Attributes:
        name: Name in the schema.
        required: Whether a node must have it.
        default: Default of the schema; None without one.
    """

    name: str
    required: bool
    default: str | int | float | tuple[str | int | float, ...] | None


@dataclass(frozen=True, slots=True)
class VersionEntry(Record):
    """One version of an operator.

    Attributes:
        since: The opset that introduced it.
        deprecated: Whether this version only deprecates the operator.
        inputs: Formal inputs in order.
        outputs: Formal outputs in order.
        attributes: Attributes in the order of their names.
    """

    since: int
    deprecated: bool
    inputs: tuple[ParameterEntry, ...]
    outputs: tuple[ParameterEntry, ...]
    attributes: tuple[AttributeEntry, ...]


@dataclass(frozen=True, slots=True)
class KernelEntry(Record):
    """A kernel of the reference runtime.

    Attributes:
        since: First version of the operator that it computes; it also computes later ones, up to
            the next kernel.
        in_place: Index of the input whose buffer it may overwrite; None for most.
    """

    since: int
    in_place: str | None


@dataclass(frozen=True, slots=True)
class LoweringEntry(Record):
    """A rule that lowers the operator to an older opset.

    Attributes:
        rule: Its name in the report of `kvtool lower`.
        below: It applies to targets below this opset.
        reads: Oldest version of the operator that it accepts.
        removes: Whether `--only` and `--target` can request it at opsets that have the operator.
    """

    rule: str
    below: int
    reads: int
    removes: bool


@dataclass(frozen=True, slots=True)
class UpgradeEntry(Record):
    """A rule that upgrades the operator to a newer opset.

    Attributes:
        rule: Its name in the report.
        across: Opsets with the change of the operator that it handles.
    """

    rule: str
    across: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RaisingEntry(Record):
    """A form of cache update that `kvtool raise` knows.

    Attributes:
        pattern: Its name in the report of `kvtool raise`.
        reads: Operator of the update in the source.
        makes: Operator of the update in the result.
    """

    pattern: str
    reads: str
    makes: str


@dataclass(frozen=True, slots=True)
class RuleEntry(Record):
    """A rule of `kvtool check` that looks at nodes of the operator and of few others.

    Attributes:
        code: Code.
        name: Name.
        severity: Usual severity of its findings.
        summary: What it finds, in one sentence without a full stop.
        url: Address of its page.
    """

    code: str
    name: str
    severity: str
    summary: str
    url: str


@dataclass(frozen=True, slots=True)
class LimitEntry(Record):
    """Uses of the operator that releases of a runtime lack, refuse or compute wrongly.

    Attributes:
        name: Identifier of the limit.
        runtime: The runtime.
        versions: The releases, oldest first.
        reason: What these releases do, as a clause that follows their name.
    """

    name: str
    runtime: str
    versions: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Operator(Record):
    """All facts about one operator of the default domain.

    Attributes:
        op: Name.
        versions: Its versions, oldest first; never empty.
        function_body: Whether the schema of its newest version has a function body.
        kernels: Kernels of the reference runtime, oldest first; if empty, onnx.reference runs the
            operator.
        lowerings: Rules for older opsets.
        upgrades: Rules for newer opsets.
        raisings: Cache updates that `raise` recognises from this operator, or writes as it.
        rules: Rules of `kvtool check`, by code.
        limits: Limits of runtimes, by runtime.
    """

    op: str
    versions: tuple[VersionEntry, ...]
    function_body: bool
    kernels: tuple[KernelEntry, ...]
    lowerings: tuple[LoweringEntry, ...]
    upgrades: tuple[UpgradeEntry, ...]
    raisings: tuple[RaisingEntry, ...]
    rules: tuple[RuleEntry, ...]
    limits: tuple[LimitEntry, ...]


@dataclass(frozen=True, slots=True)
class OpsReport(Record):
    """Operators of the default domain.

    Attributes:
        opset: Newest opset that the installed onnx knows.
        operators: The operators, by name.
    """

    opset: int
    operators: tuple[Operator, ...]


_RAISED = "TensorScatter"
"""The result of every raising."""


def run(request: OpsRequest) -> OpsReport:
    """Carry out `kvtool ops`.

    Raises:
        UsageError: If the operator is none of the default domain; the nearest one is named.
    """
    if request.op is None:
        # Those that a table of kvtool names, as far as the installed onnx has them.
        early = (op for table in STEPS.values() for op in table)
        named = {*KERNELS, *LOWERINGS, *early, *UPGRADES, *RAISINGS, _RAISED}
        named.update(op for rule in RULES.values() for op in rule.operators)
        return OpsReport(NEWEST, tuple(_operator(op) for op in sorted(named) if op_history(op)))
    if not op_history(request.op):
        help = did_you_mean(request.op, operators())
        if request.op.removeprefix(f"{DOMAIN}::") in CONTRIB_ATTENTIONS:
            help = f"it belongs to `{DOMAIN}`; `kvtool inspect` finds the caches that it updates"
        raise UsageError(f"`{request.op}` is no operator of the default domain", help=help)
    return OpsReport(NEWEST, (_operator(request.op),))


def _operator(op: str) -> Operator:
    history = op_history(op)
    written = history[0].inputs[0].name if Trait.UPDATES in traits_of(op) else None
    return Operator(
        op=op,
        versions=tuple(_version(facts) for facts in reversed(history)),
        function_body=not history[0].deprecated and has_body(op),
        kernels=tuple(KernelEntry(since, written) for since in KERNELS.get(op, ())),
        lowerings=tuple(
            LoweringEntry(
                one.name, one.since, one.since if one.reads is None else one.reads, one.removes
            )
            for one in rules_of(op)
        ),
        upgrades=tuple(
            UpgradeEntry(rule.name, rule.changes) for rule in [UPGRADES.get(op)] if rule
        ),
        raisings=tuple(
            RaisingEntry(raising.name, read, _RAISED)
            for read, raising in RAISINGS.items()
            if op in (read, _RAISED)
        ),
        rules=tuple(taken(RuleEntry, rule) for rule in RULES.values() if op in rule.operators),
        limits=_limits(op),
    )


def _version(facts: OpFacts) -> VersionEntry:
    return VersionEntry(
        facts.since_version,
        facts.deprecated,
        tuple(taken(ParameterEntry, formal) for formal in facts.inputs),
        tuple(taken(ParameterEntry, formal) for formal in facts.outputs),
        tuple(taken(AttributeEntry, one) for _, one in sorted(facts.attributes.items())),
    )


def _limits(op: str) -> tuple[LimitEntry, ...]:
    """Return the limits that name the operator, the releases of each gathered."""
    found: dict[tuple[str, str], LimitEntry] = {}
    for release in releases():
        for limit in release.limits:
            if limit.operator == op:
                key = limit.name, release.runtime
                before = found[key].versions if key in found else ()
                found[key] = LimitEntry(*key, (*before, release.version), limit.reason)
    return tuple(found.values())
