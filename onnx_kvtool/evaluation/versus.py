"""The outputs of one runtime held against those of another, run by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_kvtool.evaluation.report import Comparison
from onnx_kvtool.evaluation.runner import Runner
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.verification.comparison.compare import compare, compare_form
from onnx_kvtool.verification.comparison.rounding import Measure
from onnx_kvtool.verification.report import FirstMismatch, OutputReport

__all__ = ["Versus"]


@dataclass(slots=True)
class Versus:
    """Runs another runtime on what the first was fed, and keeps the account.

    Attributes:
        other: The part in the other runtime, whose values are the expected ones.
        outputs: Names of the outputs to compare.
        measure: How close they have to be.
    """

    other: Runner
    outputs: Sequence[str]
    measure: Measure
    _seen: dict[str, OutputReport] = field(default_factory=dict)
    _different: set[str] = field(default_factory=set)

    def watch(self, step: int, inputs: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        """Compare the outputs of one run.

        Raises:
            RunFailed: If the other runtime fails on these inputs.
        """
        try:
            expected = self.other.run(inputs).values
        except RunFailed as error:
            place = f"{self.other.runtime}: "
            told = error.message if error.message.startswith(place) else place + error.message
            raise RunFailed(f"the runtime to compare with fails: {told}") from error
        where = "in the first run" if step == 0 else f"in decode step {step}"
        for name in self.outputs:
            before = self._seen.get(name, OutputReport(name, True, 0.0))
            self._seen[name] = self._compared(before, expected[name], values[name], where)

    def _compared(
        self, before: OutputReport, expected: Value, actual: Value, where: str
    ) -> OutputReport:
        for value in (expected, actual):
            if not isinstance(value, np.ndarray):
                raise RunFailed(
                    f"output `{before.name}` is a {type(value).__name__}, and only tensors can be "
                    f"compared"
                )
        tolerance = self.measure.of(expected, before.name)
        found = (
            compare_form(before.name, expected, actual)
            if before.name in self.measure.random
            else compare(
                before.name,
                expected,
                actual,
                exact=before.name in self.measure.moved,
                rtol=tolerance.rtol,
                atol=tolerance.atol,
            )
        )
        if not found.within:
            self._different.add(before.name)
        largest = (
            None
            if before.max_abs_diff is None or found.max_abs_diff is None
            else max(before.max_abs_diff, found.max_abs_diff)
        )
        mismatch = before.first_mismatch
        if mismatch is None and found.first_mismatch is not None:
            mismatch = FirstMismatch(found.first_mismatch, where)
        equal = bool(before.bit_equal) and found.bit_equal
        return OutputReport(before.name, equal, largest, mismatch)

    def report(self) -> Comparison:
        """Return what was found over all runs."""
        return Comparison(
            "different" if self._different else "equal",
            self.other.runtime,
            tuple(self._seen.values()),
        )
