"""A stand-in for the work of a command, so that the command line is tested by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_kvtool.commands import lower as command
from onnx_kvtool.commands import verify as verify_command
from onnx_kvtool.commands.requests import LowerRequest, VerifyRequest
from onnx_kvtool.core.machine import Progress
from onnx_kvtool.rewrite.report import LowerReport
from onnx_kvtool.verification.report import VerifyReport


@pytest.fixture
def stand_in_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a directory with files of these names, which nobody opens where work is stood in for.

    That a model is there is looked at by the command line.
    """
    for name in (
        "a.onnx",
        "b.onnx",
        "decoder.onnx",
        "decoder.opset18.onnx",
        "in.onnx",
        "other.onnx",
        "x",
    ):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lower_stand_in(
    stand_in_models: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[LowerReport | BaseException], list[LowerRequest]]:
    """Let `kvtool lower` get this report or exception; the list returned fills with requests."""

    def install(outcome: LowerReport | BaseException) -> list[LowerRequest]:
        requests: list[LowerRequest] = []

        def run(request: LowerRequest, progress: Progress) -> LowerReport:
            requests.append(request)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(command, "run", run)
        return requests

    return install


@pytest.fixture
def lowered_report() -> LowerReport:
    """The report of a lowering that went well."""
    return LowerReport("in.onnx", "in.opset18.onnx", 24, 18, 8)


@pytest.fixture
def verify_stand_in(
    stand_in_models: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[VerifyReport], list[VerifyRequest]]:
    """Let `kvtool verify` get this report; the list returned fills with requests."""

    def install(report: VerifyReport) -> list[VerifyRequest]:
        requests: list[VerifyRequest] = []

        def run(request: VerifyRequest, progress: Progress) -> VerifyReport:
            requests.append(request)
            return report

        monkeypatch.setattr(verify_command, "run", run)
        return requests

    return install
