"""A release of a runtime: what it loads, what it lacks, and the evidence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from onnx_kvtool.core.domains import is_onnxruntimes

if sys.version_info >= (3, 11):
    pass
else:
    pass


Evidence = Literal["measured", "documented"]


Number = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """Nodes of one operator that a release lacks a kernel for, refuses, or computes wrongly.

    Attributes:
        name: Identifier, unique.
        operator: Operator of the default domain.
        when: Name of the condition that selects the nodes.
        since: Lowest opset of a model that it applies to; 0 for all.
        before: First opset that it no longer applies to; None if there is none.
        lower_opset: Whether the remedy is an opset below `since`, whose version has a kernel.
        types: Element types that are taken, where the condition asks for them.
        values: Attribute values that are meant, where the condition asks for them.
        behind: Operator of the node that it reads, where the condition asks for it.
        attribute: The attribute that is meant, where the condition asks for it.
        operand: The input that is meant, as the schema calls it, where the condition asks for it.
        reason: What the release does, as a clause that follows its name.
        help: What a user can do; None if only another release helps.
        listed: Whether it is an entry of `lacks`, `errs` or `constants` of a release, and no limit
            that has a name in the data.
        evidence: Whether the limit was measured or documented.
        source: Where it was measured or documented.
    """

    name: str
    operator: str
    when: str
    since: int
    lower_opset: bool
    types: tuple[str, ...]
    values: tuple[int | str, ...]
    reason: str
    evidence: Evidence
    source: str
    help: str | None = None
    before: int | None = None
    behind: str | None = None
    operand: str | None = None
    attribute: str | None = None
    listed: bool = False

    def concerns(self, opset: int) -> bool:
        """Return whether it may apply to a model of this opset."""
        return self.since <= opset and (self.before is None or opset < self.before)


@dataclass(frozen=True, slots=True)
class Known:
    """What a release of onnxruntime knows of one of its operators.

    Attributes:
        inputs: How many inputs the operator takes; 0 if unknown.
        without: Attributes that came later.
        values: Integer attributes that have kernels only for these values.
        errs: Inputs that make it compute some forms wrongly, without an error.
    """

    inputs: int
    without: frozenset[str]
    values: Mapping[str, tuple[int, ...]]
    errs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a runtime.

    Attributes:
        runtime: Name of the runtime, in lower case.
        version: Version in the runtime's own notation.
        min_opset: Lowest version of the default domain that it loads; None when not known.
        max_opset: Highest version of the default domain that it loads; None when not known.
        max_ir_version: Highest IR version that it loads; None when it has no limit that is known.
        evidence: Whether these versions were measured or documented.
        source: Where they were tried or read.
        native: Newer operators that it supports, as `<operator>-<since version>`.
        limits: What it does not support, or computes wrongly, within these versions.
        unsupported: Why nothing is written for it, a clause that follows its name; None where it is
            a target.
        bare: Whether shapes of inner values have to be left out: it takes them for facts, where
            exporters write several names for one dimension, and some that are stale.
        static: Why it is given models of fixed sizes only, a clause that follows its name; None
            where it takes symbolic dimensions.
        functions: Whether it calls functions of the model.
        explicit: Attributes (operator, name) that must not be written out, even at their default.
        contrib: Operators that ONNX does not define, of `com.microsoft` or put into the default
            domain, that it imports; None where all are, or nothing is known.
        narrower: Those that it knows less of than the newest onnxruntime, by name.
        types: Element types that it has, as they are called in lower case; None where nothing is
            known.
        plugins: Whether operators of custom domains can be added to it.
        named: Whether each dimension of an input needs a name or a number.
        notes: Notes.
    """

    runtime: str
    version: str
    min_opset: int | None
    max_opset: int | None
    max_ir_version: int | None
    evidence: Evidence
    source: str
    native: tuple[str, ...]
    limits: tuple[Limit, ...]
    explicit: frozenset[tuple[str, str]]
    contrib: frozenset[str] | None
    notes: str
    unsupported: str | None = None
    bare: bool = False
    static: str | None = None
    functions: bool = True
    narrower: Mapping[str, Known] = field(default_factory=dict)
    types: frozenset[str] | None = None
    plugins: bool = True
    named: bool = False

    @property
    def number(self) -> Number:
        """The version for comparison: (1, 17, 3)."""
        return tuple(int(part) for part in self.version.split("."))

    def imports(self, domain: str, op_type: str) -> bool:
        """Return whether it knows an operator that ONNX does not define.

        Of custom domains, whose operators come with plugins, nothing is known; those of
        onnxruntime's layouts are known to nobody else.
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
