"""How close outputs have to be."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.runtime.comparison.compare import Tolerance, largest, tolerance_of
from onnx_kvtool.runtime.comparison.movement import Arithmetic, Coarse, coarser
from onnx_kvtool.runtime.sessions import Array

__all__ = ["Measure", "Scales"]

_SAMPLE = 1 << 16
"""Elements that are looked at to tell how large an output is."""

_WITHIN = 10.0
"""Times the relative tolerance of the type, of the largest value that an output had in any run: the
absolute tolerance is for outputs whose values are of the order of 1, and no wider than that."""


class Scales:
    """How large the values of outputs are, over all runs so far.

    The first runs are of moderate inputs. An output that is small there is small by itself, and
    small inputs that come later make no tolerance narrower.
    """

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}

    def narrowed(self, name: str, value: Array, usual: Tolerance) -> Tolerance:
        """Take note of the values of a run, and return the tolerance for outputs as large."""
        if not usual.rtol or value.dtype.kind not in "fcV":
            return usual
        flat = value.reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLE)]
        scale = max(self._largest.get(name, 0.0), largest(sample))
        self._largest[name] = scale
        least = _WITHIN * usual.rtol * scale
        if not 0 < least < usual.atol:
            return usual
        because = f"{usual.because}, whose values are {scale:.1g} at most"
        return Tolerance(usual.rtol, least, because)


@dataclass(frozen=True, slots=True)
class Measure:
    """How close outputs have to be.

    Attributes:
        moved: Outputs that any right evaluation gives with the same bits.
        paths: How the values of A and of B are computed.
        exact: Whether both models are the same but for names and weights, so that every bit of
            every output has to agree.
        rtol: Relative tolerance that the user asked for; None for that of the types.
        atol: Absolute tolerance that the user asked for; None for that of the types.
        drawn: Values that random numbers go into, in A and in B: these are compared over many runs.
        is_wide: Whether the models are twins, in which no type is coarser than float32.
    """

    moved: frozenset[str]
    paths: tuple[Arithmetic, ...] = ()
    exact: bool = False
    rtol: float | None = None
    atol: float | None = None
    drawn: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    is_wide: bool = False

    @property
    def is_given(self) -> bool:
        """Whether the user asked for a tolerance, which no measured noise widens."""
        return self.rtol is not None or self.atol is not None

    @property
    def random(self) -> frozenset[str]:
        """Values that random numbers go into in one of the models at least."""
        return self.drawn[0] | self.drawn[1]

    def of(self, value: Array, *names: str) -> Tolerance:
        """Return the tolerance for a result of the dtype of `value`.

        Args:
            value: The result.
            names: What A calls it, and what B does if that is another name. The coarsest type on
                the path to it counts, in either model; without a name, no path does.
        """
        usual = tolerance_of(value.dtype)
        because = value.dtype.name
        if usual.atol and (coarse := self._coarse(*names)) is not None:
            wider = tolerance_of(coarse.dtype.numpy())
            if wider.atol > usual.atol:
                because = str(coarse)
            usual = Tolerance(max(usual.rtol, wider.rtol), max(usual.atol, wider.atol))
        if self.is_given:
            because = "the tolerance that was given"
        return Tolerance(
            usual.rtol if self.rtol is None else self.rtol,
            usual.atol if self.atol is None else self.atol,
            because,
        )

    def _coarse(self, *names: str) -> Coarse | None:
        if not names:
            return None
        known = zip(self.paths, (names[0], names[-1]), strict=False)
        found = coarser(*(path.of(name) for path, name in known))
        if found is not None and self.is_wide and found.is_narrow:
            return Coarse(ir.DataType.FLOAT, "the float32 twins")
        return found
