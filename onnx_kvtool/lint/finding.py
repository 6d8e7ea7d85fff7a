"""Findings and fixes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_kvtool.core.diagnostic import Diagnostic, Location, Severity
from onnx_kvtool.core.record import Key, Record, filled, read

_QUOTED = re.compile(r"`([^`]*)`")
_NUMBER = re.compile(r"[_.]?\d+")
_GROUP = 16  # hexadecimal digits

Applicability = Literal["safe", "unsafe"]


@dataclass(frozen=True, slots=True)
class Fix(Record):
    """An edit that removes the cause of a finding.

    Attributes:
        applicability: `safe` when neither results nor the interface change (names, types, shapes
            and order of inputs and outputs); `unsafe` otherwise.
        title: The edit, imperative, in lower case, without a full stop.
        apply: Edits the model that the rule looked at, in place. It is called once, may be called
            after other fixes have edited the same model, and does nothing where its node is gone.
    """

    applicability: Applicability
    title: str
    apply: Callable[[], object] = field(compare=False)

    JSON = ("applicability", "title")

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Fix:
        """Return the fix that an object describes; it has no model to edit."""
        fix: Fix = filled(cls, data, apply=_nothing)
        return fix


@dataclass(frozen=True, slots=True)
class Found:
    """What the check of a rule yields.

    Attributes:
        location: The place.
        message: One sentence without a full stop: got and expected, names in backticks.
        help: What to do about it, imperative.
        severity: None for that of the rule.
        fix: How to remove it.
    """

    location: Location
    message: str
    help: str | None = None
    severity: Severity | None = None
    fix: Fix | None = None


Findings = Iterator[Found]


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """A problem of a model that a rule found.

    Attributes:
        diagnostic: Code, severity, place, message and remedy.
        name: Name of the rule.
        url: Page of the rule.
        fix: The fix; None if kvtool has none.
        fingerprint: Identifies the finding in other versions of the model; unique within a model;
            "" until the engine sets it.
        identity: The same for code scanning; it survives an export that numbers nodes and values
            differently.

    Examples:
        >>> finding = kv.check("wrong_axis.onnx")[0]
        >>> finding.code, finding.name, finding.severity, finding.fix
        ('KV001', 'axis-is-batch', 'error', None)
    """

    diagnostic: Diagnostic
    name: str
    url: str
    fix: Fix | None = None
    fingerprint: str = ""
    identity: str = ""

    JSON = (
        Key("code"),
        "name",
        Key("diagnostic", parts=("severity", "message", "help", "location")),
        ...,
        "group",
    )

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Finding:
        """Return the finding that an object describes."""
        parts = {key: data.get(key) for key in ("code", "severity", "message", "help", "location")}
        finding: Finding = filled(cls, data, diagnostic=read(Diagnostic, parts))
        return finding

    @property
    def code(self) -> str:
        """Code of the rule."""
        return self.diagnostic.code

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.diagnostic.severity

    @property
    def message(self) -> str:
        """What is wrong, one sentence without a full stop."""
        return self.diagnostic.message

    @property
    def help(self) -> str | None:
        """What to do about it; None without a remedy."""
        return self.diagnostic.help

    @property
    def location(self) -> Location:
        """Where it is."""
        return self.diagnostic.location

    @property
    def group(self) -> str:
        """Common key of findings whose names differ only in numbers, such as those of layers."""
        place = self.location
        parts = (
            self.code,
            self.severity,
            *(_pattern(name or "") for name in (place.graph, place.node_label, place.value)),
            place.op or "",
            *(_form(text or "") for text in (self.message, self.help)),
            "" if self.fix is None else _form(self.fix.title),
        )
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        return hashlib.sha256(text).hexdigest()[:_GROUP]


def _nothing() -> None:
    """Edit no model."""


def _form(text: str) -> str:
    """Return a text without the numbers in names; other numbers stay."""
    return _QUOTED.sub(lambda quoted: f"`{_pattern(quoted[1])}`", text)


def _pattern(name: str) -> str:
    """Return a name without its numbers, so that `put` and `put_1` are one; a number stays."""
    is_name = any(letter.isalpha() for letter in name) or name.startswith("#")
    return _NUMBER.sub("#", name).rstrip("#") if is_name else name
