"""A release of a runtime: what it loads, what it lacks, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_kvtool.core.domains import is_onnxruntimes
from onnx_kvtool.core.record import Key, Record

Evidence = Literal["measured", "documented"]
Number = tuple[int, ...]


def number_of(version: str) -> Number:
    """Return a version for comparison: (1, 17, 3)."""
    return tuple(int(part) for part in version.split("."))


@dataclass(frozen=True, slots=True)
class Limit(Record):
    """Nodes of one operator that a release lacks a kernel for, refuses, or computes wrongly.

    Attributes:
        name: Identifier, unique.
        operator: Operator of the default domain.
        when: Name of the condition that selects the nodes. It reads `types`, `values`, `behind`,
            `attribute` and `operand`, as far as it needs them.
        reason: What the release does, as a clause that follows its name.
        evidence: Whether the limit was measured or documented.
        source: Where it was measured or documented.
        since: Lowest opset of a model that it applies to; 0 for all.
        lower_opset: Whether the remedy is an opset below `since`, whose version has a kernel.
        types: Element types that the limit spares.
        values: Values of the attribute.
        help: What a user can do; None if only another release helps.
        before: First opset that it no longer applies to; None if there is none.
        behind: Operator of the node that makes the first input.
        operand: Name of an input in the schema.
        attribute: Name of an attribute.
        listed: Whether the data names it in `lacks`, `errs` or `constants`, not as a `limit`.
    """

    name: str
    operator: str
    when: str
    reason: str
    evidence: Evidence
    source: str
    since: int = 0
    lower_opset: bool = False
    types: tuple[str, ...] = ()
    values: tuple[int | str, ...] = ()
    help: str | None = None
    before: int | None = None
    behind: str | None = None
    operand: str | None = None
    attribute: str | None = None
    listed: bool = False

    JSON = ("name", Key("operator", "op"), "reason", "evidence", "source", "help")

    def concerns(self, opset: int) -> bool:
        """Return whether it may apply to a model of this opset."""
        return self.since <= opset and (self.before is None or opset < self.before)


@dataclass(frozen=True, slots=True)
class Known:
    """The part of one of onnxruntime's operators that a release supports.

    Attributes:
        inputs: Number of inputs that it takes; 0 for an operator that it does not have.
        without: Attributes that it does not have.
        values: The values of integer attributes that it has kernels for.
        errs: Inputs that make it compute some forms wrongly, without an error.
    """

    inputs: int
    without: frozenset[str]
    values: Mapping[str, tuple[int, ...]]
    errs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Release(Record):
    """One release of a runtime.

    Attributes:
        runtime: Name of the runtime, in lower case.
        version: Version in the runtime's own notation.
        evidence: Whether its versions of opset and IR were measured or documented.
        source: Where they were measured or documented.
        native: Newer operators that it supports, as `<operator>-<since version>`.
        notes: Notes.
        limits: What it does not support, or computes wrongly, within these versions.
        explicit: Attributes (operator, name) that it refuses even at their default.
        contrib: Operators that it imports although ONNX does not define them, of `com.microsoft` or
            of the default domain; None if it imports all, or if nothing is known.
        min_opset: Lowest version of the default domain that it loads; None if unknown.
        max_opset: Highest version of the default domain that it loads; None if unknown.
        max_ir_version: Highest IR version that it loads; None if no limit is known.
        unsupported: Why kvtool writes nothing for it, a clause that follows its name; None for a
            target.
        bare: Whether kvtool removes the shapes of inner values. This runtime relies on them, and
            exporters write stale names, or several names for one dimension.
        static: Why it gets models of fixed sizes only, a clause that follows its name; None if it
            takes symbolic dimensions.
        functions: Whether it calls functions of the model.
        narrower: Operators of onnxruntime that it supports in part, by name.
        types: Element types that it supports, in lower case; None if unknown.
        plugins: Whether users can add operators of custom domains.
        named: Whether each dimension of an input needs a name or a fixed size.
    """

    runtime: str
    version: str
    evidence: Evidence
    source: str
    native: tuple[str, ...]
    notes: str
    limits: tuple[Limit, ...]
    explicit: frozenset[tuple[str, str]]
    contrib: frozenset[str] | None
    min_opset: int | None = None
    max_opset: int | None = None
    max_ir_version: int | None = None
    unsupported: str | None = None
    bare: bool = False
    static: str | None = None
    functions: bool = True
    narrower: Mapping[str, Known] = field(default_factory=dict)
    types: frozenset[str] | None = None
    plugins: bool = True
    named: bool = False

    JSON = (
        "runtime", "version", "max_opset", "max_ir_version", "evidence", "notes", "min_opset",
        "source", Key("native", "native_ops"), "limits", "unsupported",
    )  # fmt: skip

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Release:
        """Return the release that this version of kvtool knows by the name in an object."""
        from onnx_kvtool.targets.target import named_releases

        (found,) = named_releases(f"{data.get('runtime')}@{data.get('version')}")
        return found

    @property
    def number(self) -> Number:
        """The version for comparison: (1, 17, 3)."""
        return number_of(self.version)

    def imports(self, domain: str, op_type: str) -> bool:
        """Return whether it imports an operator that ONNX does not define.

        Users can add operators of custom domains by plugins. Only onnxruntime has the operators of
        its layouts.
        """
        known = self.contrib
        if domain == "com.microsoft" and op_type in self.narrower:
            return self.narrower[op_type].inputs > 0
        if known is None:
            return True
        if domain in ("", "com.microsoft"):
            return op_type in known
        return self.plugins and not is_onnxruntimes(domain)

    def __str__(self) -> str:
        return f"{self.runtime} {self.version}"
