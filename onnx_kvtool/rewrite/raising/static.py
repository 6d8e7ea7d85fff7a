"""Sizes of a raised model, fixed for good: what `--dim` and `--static` ask of `raise`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.rewrite.fixing.around import folded_note
from onnx_kvtool.rewrite.fixing.dynamic import dynamic_parts
from onnx_kvtool.rewrite.fixing.fix import fix_sizes
from onnx_kvtool.rewrite.raising.stage import RaiseOutcome, RaiseSettings
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, names_in

__all__ = ["fix_raised", "input_shapes"]

Shapes = Mapping[str, Sequence[Dim]]


def input_shapes(model: ir.Model) -> Shapes:
    """Return the shape of each input of a model that declares one, by name."""
    shapes = ((value.name or "", dims_of(value)) for value in model.graph.inputs)
    return {name: dims for name, dims in shapes if dims is not None}


def fix_raised(
    model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome, before: Shapes
) -> None:
    """Fix the sizes of a model in which something was raised, in place.

    A name along which a cache grew stays a name where other inputs have it: with a number a step
    would always begin behind the same rows.

    Args:
        model: The raised model, at one opset.
        settings: The sizes, and whether all have to be numbers.
        outcome: What was raised; what stands in the way is `blocked`.
        before: The shapes of the inputs of the source.
    """
    if not (outcome.raised or outcome.attention or outcome.contrib):
        return
    grown = _grown(before, input_shapes(model), outcome)
    dims = {name: size for name, size in settings.dims.items() if name not in grown}
    fixed = fix_sizes(model, dims, one_opset=True)
    outcome.blocked += fixed.refused
    outcome.notes += [*folded_note(fixed), *fixed.notes]
    if settings.static and fixed.inference is not None:
        outcome.blocked += dynamic_parts(model, fixed.inference, growing=grown)


def _grown(before: Shapes, after: Shapes, outcome: RaiseOutcome) -> frozenset[str]:
    """Return the names of sizes that a cache had where it has a capacity now."""
    found: set[str] = set()
    for cache in outcome.caches:
        for old, new in zip(before.get(cache.past, ()), after.get(cache.past, ()), strict=False):
            if isinstance(old, str) and old != new:
                found.update(names_in(old))
    return frozenset(found)
