"""`kvtool ops`: what it is asked, and what the tables of kvtool hold about an operator."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.commands.ops_report import (
    AttributeEntry,
    KernelEntry,
    LimitEntry,
    LoweringEntry,
    Operator,
    OpsReport,
    ParameterEntry,
    RaisingEntry,
    RuleEntry,
    UpgradeEntry,
    VersionEntry,
)
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import did_you_mean
from onnx_kvtool.lint.table import RULES
from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS, DOMAIN
from onnx_kvtool.ops.schema import NEWEST, Formal, OpFacts, op_history, operators
from onnx_kvtool.ops.traits import Trait, traits_of
from onnx_kvtool.rewrite.engine.expand import has_body
from onnx_kvtool.rewrite.lowering.early.table import STEPS, rules_of
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.raising.table import RAISINGS
from onnx_kvtool.rewrite.upgrading.table import UPGRADES
from onnx_kvtool.runtime.kernels.table import KERNELS
from onnx_kvtool.targets.releases import releases

__all__ = ["OpsRequest", "run"]

_RAISED = "TensorScatter"
"""What every raising makes of an update."""


@dataclass(frozen=True, slots=True)
class OpsRequest:
    """What `kvtool ops` was asked to do.

    Attributes:
        op: An operator of the default domain; None for all of which kvtool has something of its
            own: a kernel, a lowering, an upgrade, a raising, or a rule about it.
    """

    op: str | None = None


def run(request: OpsRequest) -> OpsReport:
    """Carry out `kvtool ops`.

    Raises:
        UsageError: If the operator is none of the default domain; the nearest one is named.
    """
    if request.op is None:
        return OpsReport(NEWEST, tuple(map(_operator, _own())))
    if not op_history(request.op):
        raise UsageError(
            f"`{request.op}` is no operator of the default domain", help=_nearest(request.op)
        )
    return OpsReport(NEWEST, (_operator(request.op),))


def _own() -> list[str]:
    """Return the operators that a table of kvtool names, as far as the installed onnx has them."""
    early = (op for table in STEPS.values() for op in table)
    named = {*KERNELS, *LOWERINGS, *early, *UPGRADES, *RAISINGS, _RAISED}
    named.update(op for rule in RULES.values() for op in rule.operators)
    return sorted(op for op in named if op_history(op))


def _nearest(name: str) -> str | None:
    """Return what may help a user who asked for a name that the default domain lacks."""
    if name.removeprefix(f"{DOMAIN}::") in CONTRIB_ATTENTIONS:
        return f"it belongs to `{DOMAIN}`; `kvtool inspect` finds the caches that it updates"
    return did_you_mean(name, operators())


def _operator(op: str) -> Operator:
    history = op_history(op)
    written = history[0].inputs[0].name if Trait.UPDATES in traits_of(op) else None
    return Operator(
        op=op,
        versions=tuple(_version(facts) for facts in reversed(history)),
        function_body=not history[0].deprecated and has_body(op),
        kernels=tuple(KernelEntry(one.since, written) for one in KERNELS.get(op, ())),
        lowerings=_lowerings(op),
        upgrades=_upgrades(op),
        raisings=tuple(
            RaisingEntry(raising.name, read, _RAISED)
            for read, raising in RAISINGS.items()
            if op in (read, _RAISED)
        ),
        rules=tuple(
            RuleEntry(rule.code, rule.name, rule.severity, rule.summary, rule.url)
            for rule in RULES.values()
            if op in rule.operators
        ),
        limits=_limits(op),
    )


def _version(facts: OpFacts) -> VersionEntry:
    return VersionEntry(
        facts.since_version,
        facts.deprecated,
        tuple(map(_parameter, facts.inputs)),
        tuple(map(_parameter, facts.outputs)),
        tuple(
            AttributeEntry(name, attribute.required, attribute.default)
            for name, attribute in sorted(facts.attributes.items())
        ),
    )


def _parameter(formal: Formal) -> ParameterEntry:
    return ParameterEntry(formal.name, formal.optional, formal.variadic)


def _lowerings(op: str) -> tuple[LoweringEntry, ...]:
    return tuple(
        LoweringEntry(
            rule.name, rule.since, rule.since if rule.reads is None else rule.reads, rule.removes
        )
        for rule in rules_of(op)
    )


def _upgrades(op: str) -> tuple[UpgradeEntry, ...]:
    rule = UPGRADES.get(op)
    return () if rule is None else (UpgradeEntry(rule.name, rule.changes),)


def _limits(op: str) -> tuple[LimitEntry, ...]:
    """Return the limits that name the operator, the releases of each gathered."""
    reasons: dict[tuple[str, str], str] = {}
    versions: dict[tuple[str, str], list[str]] = {}
    for release in releases():
        for limit in release.limits:
            if limit.operator == op:
                key = limit.name, release.runtime
                reasons[key] = limit.reason
                versions.setdefault(key, []).append(release.version)
    return tuple(
        LimitEntry(name, runtime, tuple(versions[name, runtime]), reason)
        for (name, runtime), reason in reasons.items()
    )
