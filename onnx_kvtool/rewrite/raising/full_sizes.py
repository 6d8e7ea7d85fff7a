"""Sizes that onnx's own inference does not find, for candidates that lack one."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import values
from onnx_kvtool.shapes.filling import forget_composed, may_rest_on
from onnx_kvtool.shapes.inference import infer_model

__all__ = ["LACKS_A_SIZE", "FullSizes", "full_sizes"]

LACKS_A_SIZE = frozenset(
    {
        "data-dependent-positions",
        "not-counting",
        "other-modulus",
        "size-of-result",
        "sizes-unrelated",
        "unknown-positions",
        "unknown-rank",
    }
)
"""Reasons of refusals that a size may lift which was not known."""


@dataclass(frozen=True, slots=True)
class FullSizes:
    """What was written on the values of a model.

    Attributes:
        before: Each value, with the type and shape that it had.
    """

    before: tuple[tuple[ir.Value, ir.TypeProtocol | None, ir.Shape | None], ...]

    def remove(self) -> None:
        """Give every value back what it had."""
        for value, type_, shape in self.before:
            value.type, value.shape = type_, shape


def full_sizes(model: ir.Model) -> FullSizes | None:
    """Write the type and shape that can be inferred on every value but the outputs, in place.

    An output keeps what the file declares: a TensorScatter takes that over from what it replaces.

    A size that is computed from several names stays unknown.

    Returns:
        What was there before; None, with nothing written, where the model contradicts itself, or
        where a size is known only if another one is not 0.
    """
    before = tuple((value, value.type, value.shape) for value in values(model))
    found = FullSizes(before)
    try:
        inference = infer_model(model)
    except KvtoolError:
        found.remove()
        return None
    if inference.report.conflicts or not may_rest_on(inference.run.knowledge):
        found.remove()
        return None
    inference.annotate()
    for value, type_, shape in before:
        if value.is_graph_output():
            value.type, value.shape = type_, shape
        else:
            forget_composed(value, shape)
    return found
