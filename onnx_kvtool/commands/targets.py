"""`kvtool targets`: the releases of runtimes that `lower --target` knows."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.commands.requests import TargetsRequest
from onnx_kvtool.core.record import Record
from onnx_kvtool.targets.release import Release
from onnx_kvtool.targets.target import named_releases


@dataclass(frozen=True, slots=True)
class TargetsReport(Record):
    """The releases that `--target` knows.

    Attributes:
        targets: The requested releases, by runtime, in ascending order.
    """

    targets: tuple[Release, ...]


def run(request: TargetsRequest) -> TargetsReport:
    """Carry out `kvtool targets`.

    Raises:
        UsageError: If no runtime, or no release of it, has the name.
    """
    return TargetsReport(named_releases(request.name))
