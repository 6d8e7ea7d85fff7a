"""A rewrite of a model whose sizes are fixed: before it, so that rules know them, and behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.origin import origin
from onnx_kvtool.rewrite.engine.stamp import normalise_domains
from onnx_kvtool.rewrite.fixing.dynamic import dynamic_parts
from onnx_kvtool.rewrite.fixing.fix import Fixed, Labels, fix_sizes
from onnx_kvtool.rewrite.report import Outcome

__all__ = ["folded_note", "rewrite_fixed"]


def rewrite_fixed(
    model: ir.Model,
    dims: Mapping[str, int],
    opset: int,
    rewrite: Callable[[], Outcome],
    *,
    static: bool,
    asks: str = "",
    keeps_opset: bool = False,
) -> Outcome:
    """Fix sizes of a model and lower it, in place.

    Args:
        model: The model; if anything is refused it must be thrown away.
        dims: Sizes by the name of a dimension.
        opset: The opset that the rewrite would lead to, for a refusal before it.
        rewrite: Rewrites the model in place.
        static: Whether every size of the result has to be a number.
        asks: Who asks for numbers, and why, where that is not the user.
        keeps_opset: Whether nodes stay at the opset of the model, so that functions built on
            another one cannot be opened.

    Returns:
        What the rewrite did, with what was refused and folded because of sizes.
    """
    normalise_domains(model)
    source = model.opset_imports.get("")
    if source is None or any(defect.severity == "error" for defect in origin(model).defects):
        return rewrite()  # which refuses it
    labels = Labels(model)
    before = fix_sizes(model, dims, one_opset=keeps_opset)
    if before.refused:
        labels.remove()
        return Outcome(source, min(opset, source), refused=before.refused, notes=before.notes)
    outcome = rewrite()
    if not outcome.refused:
        # Rules leave sizes behind that follow from one another, and values without a shape.
        after = fix_sizes(model, {}, one_opset=True)
        outcome.refused += after.refused
        if static and after.inference is not None:
            found = dynamic_parts(model, after.inference)
            told = f"{asks}: " if asks else ""
            outcome.refused += [replace(one, message=told + one.message) for one in found]
        outcome.notes[:0] = [*folded_note(before, after), *before.notes]
    labels.remove()
    return outcome


def folded_note(*steps: Fixed) -> list[str]:
    """Return a remark on the nodes that are gone because of sizes; none where none is."""
    count = sum(step.folded for step in steps)
    return [f"{counted(count, 'node')} folded with the sizes that are fixed"] if count else []
