"""`kvtool targets`: the releases of runtimes that `lower --target` knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx_kvtool.targets.target import Release, named_releases

__all__ = ["TargetsReport", "TargetsRequest", "run"]


@dataclass(frozen=True, slots=True)
class TargetsRequest:
    """What `kvtool targets` was asked to show.

    Attributes:
        name: A runtime, or `RUNTIME@VERSION`; None for all.
    """

    name: str | None = None


@dataclass(frozen=True, slots=True)
class TargetsReport:
    """The releases that `--target` knows.

    Attributes:
        targets: The releases that were asked for, runtime by runtime, each in ascending order.
    """

    targets: tuple[Release, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes, without the header.

        A version that is not known is null.
        """
        return {"targets": [_entry(release) for release in self.targets]}


def _entry(release: Release) -> dict[str, Any]:
    return {
        "runtime": release.runtime,
        "version": release.version,
        "max_opset": release.max_opset,
        "max_ir_version": release.max_ir_version,
        "evidence": release.evidence,
        "notes": release.notes,
        "min_opset": release.min_opset,
        "source": release.source,
        "native_ops": list(release.native),
        "limits": [
            {
                "name": limit.name,
                "op": limit.operator,
                "reason": limit.reason,
                "evidence": limit.evidence,
                "source": limit.source,
                "help": limit.help,
            }
            for limit in release.limits
        ],
        "unsupported": release.unsupported,
    }


def run(request: TargetsRequest) -> TargetsReport:
    """Carry out `kvtool targets`.

    Raises:
        UsageError: If no runtime, or no release of it, has the name.
    """
    return TargetsReport(named_releases(request.name))
