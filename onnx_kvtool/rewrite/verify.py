"""Proof by running: a rewritten model against its source, on the same inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import RotatedCache
from onnx_kvtool.core.errors import Unverified
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.core.reporting import missing
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.rewrite.report import Verification
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.verification.affordable import Candidate, compare_candidates
from onnx_kvtool.verification.report import Settings, VerifyReport

_SOURCE, _RESULT = "the source", "the result"


class Verifier:
    """Compares rewritten models with one source model, by the engine of `kvtool verify`.

    What it needs of the source is captured when it is made, so that the source may then be edited
    in place. Models that would take more than the budget are compared by copies.

    Args:
        source: The model before it is rewritten.
        settings: How to compare; with `strict`, a result is rejected where the proof did not cover
            something. The source is right by definition.
        force: Whether not to do without a comparison, and to run models as they are that fit into
            the memory of the machine.
        needs_source: Whether a result is rejected where the source fails on all drawn inputs.
    """

    def __init__(
        self,
        source: ir.Model,
        settings: Settings | None = None,
        *,
        force: bool = False,
        needs_source: bool = False,
    ) -> None:
        settings = replace(settings or Settings(), is_a_right=True)
        self._force = force
        self._needs_source = needs_source
        if force and (available := available_memory()) is not None:
            budget = settings.budget
            whole = Budget(max(available // 2, budget.memory), max(budget.seconds, 600.0))
            settings = replace(settings, budget=whole)
        self._settings = settings
        self._source = Candidate.of(source, _SOURCE, settings)

    def compare(
        self,
        result: ir.Model,
        *,
        dims: Mapping[str, int] | None = None,
        positions: Collection[str] = (),
        rotated: Collection[RotatedCache] = (),
        unpadded: Collection[str] = (),
        is_in_range: bool = False,
        widened: ir.DataType | None = None,
    ) -> Verification:
        """Run the source and `result` on the same inputs and compare every output.

        Args:
            result: The rewritten model; it is not changed.
            dims: Sizes that the source is known to run with, where none was asked for.
            positions: Inputs that are taken to be positions which count up by one.
            rotated: Caches whose rows the source keeps in order, and the result rotated.
            unpadded: Inputs that are taken to be 1 throughout.
            is_in_range: Whether no start is taken to lie below 0.
            widened: Element type that the result has where the source has bfloat16.

        Returns:
            `equal`, `different` with the first difference, or `skipped` with the reason.

        Raises:
            Unverified: If no runtime can run the models, and they were to be run by `force`.
        """
        settings = replace(
            self._settings,
            dims={**(dims or {}), **self._settings.dims},
            positions=frozenset(positions),
            rotated=tuple(rotated),
            unpadded=frozenset(unpadded),
            is_in_range=is_in_range,
            widened=widened,
        )
        judged = Candidate.of(result, _RESULT, settings)
        report = compare_candidates(self._source, judged, settings)
        if self._force and report.status == "unrunnable":
            raise Unverified(
                f"the result cannot be verified: {report.detail}",
                help="leave `--verify` out to write it unverified",
            )
        found = _verification(report)
        if self._settings.strict and found.status != "different":
            nothing = found.detail if found.status == "skipped" else missing(found.covered)
            return replace(found, insufficient=nothing)
        if self._needs_source and report.status == "unrunnable" and report.a_fails:
            help = "fix the sizes with `--dim`, or write the result unproven with `--no-verify`"
            return replace(found, detail=f"{found.detail}; {help}", insufficient=report.detail)
        return found


def _verification(report: VerifyReport) -> Verification:
    """Return what a rewrite reports of a comparison."""
    if report.status == "unrunnable":
        detail = report.detail
        if report.needed:
            enough = binary_bytes(1 << (report.needed - 1).bit_length()).replace(" ", "")
            detail = f"{detail}; `--verify-budget {enough}` allows it"
        return Verification("skipped", detail=detail)
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
        shrunken=report.shrunken,
        covered=report.covered,
    )
