"""List the releases of runtimes that `lower --target` knows."""

from __future__ import annotations

from onnx_kvtool.targets.report import TargetsReport
from onnx_kvtool.targets.target import releases

__all__ = ["run"]


def run() -> TargetsReport:
    """Carry out `kvtool targets`."""
    return TargetsReport(releases())
