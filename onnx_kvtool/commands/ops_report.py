"""What `kvtool ops` answers: the facts of an operator, and what the tool has of its own for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx_kvtool.core.record import Record

__all__ = [
    "AttributeEntry",
    "KernelEntry",
    "LimitEntry",
    "LoweringEntry",
    "Operator",
    "OpsReport",
    "ParameterEntry",
    "RaisingEntry",
    "RuleEntry",
    "UpgradeEntry",
    "VersionEntry",
]


@dataclass(frozen=True, slots=True)
class ParameterEntry(Record):
    """One formal input or output.

    Attributes:
        name: Name as in the schema.
        optional: Whether it may be absent.
        variadic: Whether it takes any number of values.
    """

    name: str
    optional: bool
    variadic: bool


@dataclass(frozen=True, slots=True)
class AttributeEntry(Record):
    """One attribute.

    Attributes:
        name: Name as in the schema.
        required: Whether a node must carry it.
        default: The schema's default; None when there is none.
    """

    name: str
    required: bool
    default: Any


@dataclass(frozen=True, slots=True)
class VersionEntry(Record):
    """One version of an operator.

    Attributes:
        since: The opset that introduced it.
        deprecated: Whether it only says that the operator is gone.
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
        since: First version of the operator that it computes; it computes the later ones up to the
            next kernel.
        in_place: Input whose buffer it may write into; None for most.
    """

    since: int
    in_place: str | None


@dataclass(frozen=True, slots=True)
class LoweringEntry(Record):
    """A rule that takes the operator to an older opset.

    Attributes:
        rule: What the report of `kvtool lower` calls it.
        below: It serves targets below this opset.
        reads: Oldest form of the operator that it takes.
        removes: Whether `--only` and `--target` can ask for it where the opset has the operator.
    """

    rule: str
    below: int
    reads: int
    removes: bool


@dataclass(frozen=True, slots=True)
class UpgradeEntry(Record):
    """A rule that takes the operator to a later opset.

    Attributes:
        rule: What the report calls it.
        across: Opsets whose change of the operator it answers.
    """

    rule: str
    across: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RaisingEntry(Record):
    """A form of cache update that `kvtool raise` knows.

    Attributes:
        pattern: What the report of `kvtool raise` calls it.
        reads: Operator that the update is read off.
        makes: Operator that takes its place.
    """

    pattern: str
    reads: str
    makes: str


@dataclass(frozen=True, slots=True)
class RuleEntry(Record):
    """A rule of `kvtool check` that looks at nodes of the operator and of few others.

    Attributes:
        code: Its code.
        name: Its name.
        severity: Usual severity of what it finds.
        summary: What it finds, in one sentence without a full stop.
        url: Its page, relative to the root of the project.
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
        versions: The releases, the oldest first.
        reason: What they do; a clause that follows their name.
    """

    name: str
    runtime: str
    versions: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Operator(Record):
    """All that is known of one operator of the default domain.

    Attributes:
        op: Its name.
        versions: Its versions, the oldest first; never empty.
        function_body: Whether the schema of its newest version defines it by other operators.
        kernels: Kernels of the reference runtime, the oldest first; without one, onnx's reference
            implementation runs the operator.
        lowerings: Rules to older opsets.
        upgrades: Rules to later opsets.
        raisings: Forms of cache update that are read off it, or turned into it.
        rules: Rules of `kvtool check`, by code.
        limits: Limits of runtimes, runtime by runtime.
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
