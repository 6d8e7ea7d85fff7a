"""What onnx's inference leaves open, filled by kvtool's own.

onnx knows nothing of contrib operators, and nothing of what comes behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
import onnx_ir as ir

from onnx_kvtool.core.walk import values
from onnx_kvtool.shapes.completion import Completion
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.shapes.writing import Writer
from onnx_kvtool.symbolic.dimensions import is_composed
from onnx_kvtool.symbolic.knowledge import Knowledge, Lost

__all__ = ["fill", "forget_composed", "may_rest_on"]


def fill(
    model: ir.Model,
    lacking: Collection[ir.Value],
    told: Mapping[str, onnx.TypeProto],
    completion: Completion,
) -> dict[ir.Value, Lost]:
    """Write the types and shapes that `infer` finds on values that lack them, in place.

    A rewrite may rest on every size that is written. So a size that is computed from several names
    stays unknown, and so does every size where the model contradicts itself, or where one is known
    only if another one is not 0: of such a model, types and ranks are written.

    Args:
        model: The model.
        lacking: The values to write on; all others stay as they are.
        told: What onnx's inference says of the values of the main graph, by name.
        completion: Writes, and notes what it wrote on.

    Returns:
        Each value of the model whose type or rank stays unknown, with where and why it was lost.
    """
    before = [(value, value.type) for value in values(model)]
    run = Forward(model, {}, told)
    try:
        run.run()
    finally:
        for value, type_ in before:  # the run leaves on them what it found
            if value.type is not type_:
                value.type = type_
    writer = Writer(run, frozen=True)
    is_certain = may_rest_on(run.knowledge)

    def annotate(value: ir.Value) -> None:
        writer.annotate(value)
        if is_certain:
            forget_composed(value)
        elif value.shape is not None and len(value.shape):
            value.shape = ir.Shape([None] * len(value.shape))

    for value in lacking:
        if value in run.knowledge.types:
            completion.complete(value, annotate)
    return run.knowledge.lost


def may_rest_on(knowledge: Knowledge) -> bool:
    """Return whether a rewrite may rest on sizes that were found.

    It may not where the model contradicts itself, or where a size is known only if another one is
    not 0.
    """
    return not (knowledge.conflicts or knowledge.assumed)


def forget_composed(value: ir.Value, declared: ir.Shape | None = None) -> None:
    """Let the sizes of a value be unknown that are computed from names; those `declared` stay."""
    dims = () if value.shape is None else tuple(value.shape)
    old = () if declared is None else tuple(declared)
    kept = [dim if dim in old or not is_composed(dim) else None for dim in dims]
    if any(one is not dim for one, dim in zip(kept, dims, strict=True)):
        value.shape = ir.Shape(kept)
