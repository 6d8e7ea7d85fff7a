"""`kvtool targets`: the releases of runtimes that `lower --target` knows."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.commands.requests import TargetsRequest
from onnx_kvtool.core.record import Form, Key, Record
from onnx_kvtool.targets.release import Evidence, Release
from onnx_kvtool.targets.target import named_releases


@dataclass(frozen=True, slots=True)
class LimitEntry(Record):
    """What a release lacks, refuses or computes wrongly.

    Attributes:
        name: Identifier of the limit.
        op: Operator of the default domain.
        reason: What the release does, as a clause that follows its name.
        evidence: Whether the limit was measured or documented.
        source: Where it was measured or documented.
        help: What a user can do; null if only another release helps.
    """

    name: str
    op: str
    reason: str
    evidence: Evidence
    source: str
    help: str | None


@dataclass(frozen=True, slots=True)
class TargetEntry(Record):
    """One release of a runtime. A version that is unknown is null.

    Attributes:
        runtime: Name of the runtime, in lower case.
        version: Version in the runtime's own notation.
        max_opset: Highest version of the default domain that it supports.
        max_ir_version: Highest IR version that it supports.
        evidence: Whether these versions were measured or documented.
        notes: Notes.
        min_opset: Lowest version of the default domain that it supports.
        source: Where the versions were measured or documented.
        native_ops: Newer operators that it supports, as `<operator>-<since version>`.
        limits: What it does not support, or computes wrongly, within these versions.
        unsupported: Why kvtool writes no model for it; null for a target.
    """

    runtime: str
    version: str
    max_opset: int | None
    max_ir_version: int | None
    evidence: Evidence
    notes: str
    min_opset: int | None
    source: str
    native_ops: tuple[str, ...]
    limits: tuple[LimitEntry, ...]
    unsupported: str | None


def _entries(releases: tuple[Release, ...]) -> list[TargetEntry]:
    return [
        TargetEntry(
            runtime=release.runtime,
            version=release.version,
            max_opset=release.max_opset,
            max_ir_version=release.max_ir_version,
            evidence=release.evidence,
            notes=release.notes,
            min_opset=release.min_opset,
            source=release.source,
            native_ops=release.native,
            limits=tuple(
                LimitEntry(
                    limit.name,
                    limit.operator,
                    limit.reason,
                    limit.evidence,
                    limit.source,
                    limit.help,
                )
                for limit in release.limits
            ),
            unsupported=release.unsupported,
        )
        for release in releases
    ]


def _named(entries: list[TargetEntry]) -> tuple[Release, ...]:
    """Return the releases that this version of kvtool knows by these names."""
    return tuple(release for e in entries for release in named_releases(f"{e.runtime}@{e.version}"))


_FORM = Form(list[TargetEntry], _entries, _named)


@dataclass(frozen=True, slots=True)
class TargetsReport(Record):
    """The releases that `--target` knows.

    Attributes:
        targets: The requested releases, by runtime, in ascending order.
    """

    targets: tuple[Release, ...]

    JSON = (Key("targets", form=_FORM),)


def run(request: TargetsRequest) -> TargetsReport:
    """Carry out `kvtool targets`.

    Raises:
        UsageError: If no runtime, or no release of it, has the name.
    """
    return TargetsReport(named_releases(request.name))
