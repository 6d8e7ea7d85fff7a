"""Proof by running: a rewritten model against its source, on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnx_ir as ir

from onnx_kvtool.core.model import origin, serialize
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import tensors
from onnx_kvtool.rewrite.report import Verification
from onnx_kvtool.runtime.errors import CannotDraw, ModelRejected, RuntimeUnavailable
from onnx_kvtool.runtime.interface import interface_difference, interface_of
from onnx_kvtool.runtime.movement import moved_outputs
from onnx_kvtool.runtime.noise import Noise, precision_of
from onnx_kvtool.runtime.plan import plan
from onnx_kvtool.runtime.sessions import RUNTIMES, RuntimeName, Session, open_session
from onnx_kvtool.runtime.side_by_side import Outcome, Subject, run_side_by_side

__all__ = ["Verifier"]

_STEPS = 2
"""Decode steps after each first run: one that reads what the first run wrote, and one that reads
what a step wrote."""

_LARGEST_WEIGHTS = 512 << 20
"""Bytes. Above it loading both models takes a multiple of the time that lowering takes."""


class Verifier:
    """Compares rewritten models with one source model.

    What it needs of the source is captured when it is made, so that the source may then be edited
    in place.

    Args:
        source: The model before it is rewritten.
        seed: Seed of the inputs that are drawn.
        steps: Decode steps after the first run of each case; None for the usual number.
        dims: Sizes for symbolic dimensions, by name.
        force: Whether to run models of any size.
    """

    def __init__(
        self,
        source: ir.Model,
        *,
        seed: int = 0,
        steps: int | None = None,
        dims: Mapping[str, int] | None = None,
        force: bool = False,
    ) -> None:
        self._seed = seed
        self._steps = _STEPS if steps is None else steps
        self._dims = dict(dims or {})
        self._sessions: dict[RuntimeName, Session | RuntimeUnavailable] = {}
        self._skip = None if force else _too_large(source)
        if self._skip is not None:
            return
        self._interface = interface_of(source)
        try:
            self._subject = Subject(plan(source), moved_outputs(source), precision_of(source))
        except CannotDraw as error:
            self._skip = error.message
            return
        self._directory = _directory(source)
        self._model = serialize(source)

    def compare(self, result: ir.Model) -> Verification:
        """Run the source and `result` on the same inputs and compare every output.

        Both run over several cases that differ in sizes and starts, each a first run and then
        decode steps in which the presents of the source are fed to both. Outputs that only move
        data, and the rows of caches that the source does not write, must agree bit for bit, the
        rest within a tolerance that is justified by the types and, where that is not enough, by
        how much the source differs from itself when it is evaluated in another way.

        onnxruntime runs both if it can load both and run the source, else the reference.

        Args:
            result: The rewritten model; it is not changed.

        Returns:
            `equal`; `different` with the first difference (names, order, types or ranks of inputs
            and outputs, a result that breaks the specification or fails where the source runs, or
            a value); or `skipped` with the reason.
        """
        if self._skip is not None:
            return Verification("skipped", detail=self._skip)
        difference = interface_difference(self._interface, interface_of(result))
        if difference is not None:
            return Verification("different", detail=difference)
        model, directory = serialize(result), _directory(result)
        reasons: list[str] = []
        for runtime in RUNTIMES:
            try:
                source = self._session(runtime)
                other = _open_result(runtime, model, directory)
            except RuntimeUnavailable as error:
                reasons.append(error.message)
                continue
            if isinstance(other, ModelRejected):
                return Verification("different", source.runtime, detail=other.message)
            outcome = run_side_by_side(
                source,
                other,
                self._subject,
                Noise(self._model, self._directory, runtime),
                seed=self._seed,
                steps=self._steps,
                dims=self._dims,
            )
            if outcome.cases:
                return self._verification(outcome, source.runtime, reasons)
            reasons.append(f"the source does not run on drawn inputs: {outcome.failure}")
        return Verification("skipped", detail="; ".join(reasons))

    def _session(self, runtime: RuntimeName) -> Session:
        """Return the source loaded in `runtime`, which is tried once."""
        if runtime not in self._sessions:
            try:
                self._sessions[runtime] = open_session(runtime, self._model, self._directory)
            except RuntimeUnavailable as error:
                self._sessions[runtime] = error
        session = self._sessions[runtime]
        if isinstance(session, RuntimeUnavailable):
            raise session
        return session

    def _verification(self, outcome: Outcome, runtime: str, reasons: list[str]) -> Verification:
        notes = [*reasons, *([outcome.noise] if outcome.noise else [])]
        names = (port.name for port in self._interface.outputs)
        return Verification(
            status="different" if outcome.difference else "equal",
            runtime=runtime,
            cases=outcome.cases,
            steps=outcome.steps,
            max_abs_diff=outcome.max_abs_diff,
            bit_equal=tuple(name for name in names if name not in outcome.unequal),
            detail=outcome.difference or "; ".join(notes) or None,
        )


def _open_result(runtime: RuntimeName, model: bytes, directory: str) -> Session | ModelRejected:
    try:
        return open_session(runtime, model, directory)
    except ModelRejected as error:
        return error


def _directory(model: ir.Model) -> str:
    """Return where the external data of `model` starts; "" if it has none, or not one place."""
    if known := origin(model).directory:
        return known
    bases = {
        os.path.abspath(tensor.base_dir)
        for _, tensor in tensors(model)
        if isinstance(tensor, ir.ExternalTensor)
    }
    return bases.pop() if len(bases) == 1 else ""


def _too_large(model: ir.Model) -> str | None:
    """Return why `model` is not run unasked; None when it is small enough."""
    weights = sum(tensor_bytes(tensor) for _, tensor in tensors(model))
    if weights <= _LARGEST_WEIGHTS:
        return None
    return (
        f"the weights take {weights / 2**20:.0f} MiB, more than {_LARGEST_WEIGHTS >> 20} MiB; "
        "`--verify` runs the models all the same"
    )
