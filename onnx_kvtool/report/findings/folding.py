"""Findings that differ by the numbers in names alone, told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.report.cache_groups import joined
from onnx_kvtool.report.findings.names import qualified_name

__all__ = ["folded", "others_in_words"]

_RANGES = 30  # characters that numbers may take: `{1..29}`, `{1,3,5,7,9..29}`


def folded(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """Yield the first finding of each group with the others, in the order of the first ones."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.group, []).append(finding)
    for first, *others in groups.values():
        yield first, others


def others_in_words(others: Sequence[Finding]) -> str:
    """Return what to say of findings that are like the one before: `29 more, layer.{1..29}`.

    Args:
        others: At least one.
    """
    names = list(dict.fromkeys(qualified_name(finding.location) for finding in others))
    if not names[-1]:
        return f"{len(others)} more"
    name = joined(names)
    if name is None or len(name) > len(names[0]) + _RANGES:  # numbers without a pattern
        name = f"the last at {names[-1]}"
    return f"{len(others)} more, {name}"
