"""Proof by running: a rewritten model against its source, on the same inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError, Unverified
from onnx_kvtool.core.progress import Progress, silent
from onnx_kvtool.core.quantity import binary_bytes
from onnx_kvtool.rewrite.report import Verification
from onnx_kvtool.runtime.verification.engine import compare_models
from onnx_kvtool.runtime.verification.report import VerifyReport
from onnx_kvtool.runtime.verification.settings import Settings
from onnx_kvtool.runtime.verification.sizes import Large, compare_shrunk, weight_bytes
from onnx_kvtool.runtime.verification.subject import Subject, capture

__all__ = ["Verifier"]

_SOURCE, _RESULT = "the source", "the result"

_LARGEST_WEIGHTS = 512 << 20
"""Bytes. Above it loading both models takes a multiple of the time that a rewrite takes."""


class Verifier:
    """Compares rewritten models with one source model, by the engine of `kvtool verify`.

    What it needs of the source is captured when it is made, so that the source may then be edited
    in place. Models whose weights take more than 512 MiB are compared by copies with smaller
    weights.

    Args:
        source: The model before it is rewritten.
        seed: Seed of the inputs that are drawn.
        steps: Decode steps after the first run of each case; None for the usual number.
        dims: Sizes for symbolic dimensions, by name.
        force: Whether to run models of any size as they are, and not to do without a comparison.
        progress: Told of what is begun.
    """

    def __init__(
        self,
        source: ir.Model,
        *,
        seed: int = 0,
        steps: int | None = None,
        dims: Mapping[str, int] | None = None,
        force: bool = False,
        progress: Progress = silent,
    ) -> None:
        self._settings = Settings(
            steps=steps, seed=seed, dims=dict(dims or {}), is_a_right=True, progress=progress
        )
        self._force = force
        self._size = weight_bytes(source)
        self._source: Subject | Large | None = None
        self._skip: str | None = None
        if force or self._size <= _LARGEST_WEIGHTS:
            self._source = capture(source, _SOURCE)
            return
        try:
            self._source = Large(source, _SOURCE)
        except KvtoolError as error:
            self._skip = error.message

    def compare(
        self,
        result: ir.Model,
        *,
        dims: Mapping[str, int] | None = None,
        positions: Collection[str] = (),
    ) -> Verification:
        """Run the source and `result` on the same inputs and compare every output.

        Args:
            result: The rewritten model; it is not changed.
            dims: Sizes at which the source is known to run, where none was asked for.
            positions: Inputs that are taken to be positions which count up by one.

        Returns:
            `equal`, `different` with the first difference, or `skipped` with the reason.

        Raises:
            Unverified: If no runtime can run the models, and they were to be run by `force`.
        """
        settings = replace(
            self._settings,
            dims={**(dims or {}), **self._settings.dims},
            positions=frozenset(positions),
        )
        if isinstance(self._source, Subject):
            report = compare_models(self._source, capture(result, _RESULT), settings)
            if self._force and report.status == "unrunnable":
                raise Unverified(
                    f"the result cannot be verified: {report.detail}",
                    help="leave `--verify` out to write it unverified",
                )
            return _verification(report)
        reason = self._skip
        if isinstance(self._source, Large):
            try:
                report = compare_shrunk(self._source, Large(result, _RESULT), settings)
            except KvtoolError as error:
                reason = error.message
            else:
                if report.status != "unrunnable":
                    return _verification(report)
                reason = report.detail
        return Verification(
            "skipped",
            detail=f"the weights take {binary_bytes(self._size)}, more than "
            f"{binary_bytes(_LARGEST_WEIGHTS)}, and {reason}; "
            "`--verify` runs the models as they are",
        )


def _verification(report: VerifyReport) -> Verification:
    """Return what a rewrite reports of a comparison."""
    if report.status == "unrunnable":
        return Verification("skipped", detail=report.detail)
    details = [report.detail] if report.detail else list(report.notes)
    if report.earliest is not None:
        details.append(f"the earliest value that differs is that of {report.earliest.a}")
    if report.detail and report.shrunk:
        details.append(report.notes[0])
    return Verification(
        status=report.status,
        runtime=report.runtime,
        cases=report.cases,
        steps=report.steps,
        max_abs_diff=report.max_abs_diff,
        bit_equal=tuple(output.name for output in report.outputs if output.bit_equal),
        detail="; ".join(details) or None,
    )
