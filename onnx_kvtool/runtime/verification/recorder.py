"""The inputs of the runs in which two models were compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx_kvtool.runtime.comparison.measure import Measure
from onnx_kvtool.runtime.sessions import Array, Arrays, Session
from onnx_kvtool.runtime.verification.planting import is_seen

__all__ = ["Recorder", "total_bytes"]

_RUNS = 2
"""Runs that are looked into by default: the first, and the decode step behind it."""

_RECORDED = 16
"""The part of the memory of a comparison that inputs of recorded runs may take."""

_PART = 1 << 16
"""Elements of an output that are looked at to see whether a mistake in it would be noticed."""


class Recorder:
    """A session that keeps what it was fed in its first runs.

    Args:
        session: The session of the model that follows, which is only run where both are compared.
        memory: Bytes that the comparison may take.
        measure: How close outputs have to be.
        is_live: Whether no row of a run holds padding; runs with padding are kept if there is no
            other.
        is_every: Whether all runs are kept that fit into the memory, not only the first ones.

    Attributes:
        runs: The inputs.
        runtime: Name and version of what runs the model.
        is_padded: Whether rows of these runs are padding.
        last: The inputs of the last run, unless they are too large to be kept; looked at where the
            others say nothing.
        lit: Outputs in which a mistake would have been noticed.
    """

    def __init__(
        self,
        session: Session,
        memory: int,
        measure: Measure,
        is_live: Callable[[Arrays], bool],
        *,
        is_every: bool = False,
    ) -> None:
        self._session: Session | None = session
        self.runtime = session.runtime
        self._left = memory // _RECORDED
        self._measure = measure
        self._is_live = is_live
        self._is_every = is_every
        self.runs: list[Arrays] = []
        self.is_padded = False
        self.last: Arrays | None = None
        self.lit: set[str] = set()

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model, and keep the inputs."""
        assert self._session is not None, "the recorder has let go of its session"
        outputs = self._session.run(inputs)
        fed = dict(inputs)
        if self._is_every or self.is_padded or len(self.runs) < _RUNS:
            self._keep(fed)
        elif self._is_live(fed):
            self.last = fed if total_bytes(fed) <= self._left else None
        for name in outputs.keys() - self.lit - self._measure.random:
            part = outputs[name].reshape(-1)[:_PART]
            if is_seen(part, self._measure.of(part, name)):
                self.lit.add(name)
        return outputs

    def let_go(self) -> None:
        """Hold the session no more, which is not run again."""
        self._session = None

    def _keep(self, inputs: Arrays) -> None:
        is_live = self._is_live(inputs)
        if self.runs and not is_live:
            return
        if self.runs and self.is_padded:
            self._left += total_bytes(self.runs.pop())
        needed = total_bytes(inputs)
        if not self.runs or needed <= self._left:
            self._left -= needed
            self.runs.append(inputs)
            self.is_padded = not is_live


def total_bytes(inputs: Mapping[str, Array]) -> int:
    """Return the bytes that arrays take together."""
    return sum(array.nbytes for array in inputs.values())
