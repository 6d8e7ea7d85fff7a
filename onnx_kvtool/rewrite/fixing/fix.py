"""Sizes of symbolic dimensions, put in for good, before and behind a rewrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.walk import nodes, values
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Names, Refusal
from onnx_kvtool.model_io.model import origin
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.engine.expand import decide_branches
from onnx_kvtool.rewrite.engine.inline import inline_functions
from onnx_kvtool.rewrite.engine.stamp import normalise_domains
from onnx_kvtool.rewrite.fixing.dynamic import dynamic_parts
from onnx_kvtool.rewrite.fixing.fold import fold, remove_unread
from onnx_kvtool.rewrite.report import Outcome
from onnx_kvtool.shapes.annotations import correct_constants
from onnx_kvtool.shapes.inference import Inference, infer_model
from onnx_kvtool.shapes.writing import fix_dims
from onnx_kvtool.symbolic.knowledge import Conflict

# Sizes of symbolic dimensions, put in for good: declared, inferred, and folded.


_MOST_ROUNDS = 8
"""Most times that a model is inferred and folded; each lets inference see one fold further."""


@dataclass(slots=True)
class Fixed:
    """What came of fixing the sizes of a model.

    Attributes:
        folded: Number of nodes that are gone: folded, dropped, or read by nobody any more.
        refused: Why the sizes cannot be fixed; the model is then fit for nothing else.
        inference: What is known of the model as it is now; None where it was refused.
    """

    folded: int = 0
    refused: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    inference: Inference | None = None


class Labels:
    """Name unnamed nodes by their position, to identify them when nodes around them are removed."""

    def __init__(self, model: ir.Model) -> None:
        self._given = [(n, f"#{i}") for _, i, n in nodes(model) if not n.name]
        for node, label in self._given:
            node.name = label

    def remove(self) -> None:
        """Take the names away again, in place."""
        for node, label in self._given:
            if node.name == label:
                node.name = None


def fix_sizes(model: ir.Model, dims: Mapping[str, int], *, one_opset: bool = False) -> Fixed:
    """Put sizes in for names of dimensions and fold all that follows, in place.

    Inputs, outputs and all other values declare what is known with these sizes, if all of it is
    numbers or the file declared something before. Shapes that are read, index arithmetic on them,
    and constants that are made or moved by it become constants; an If that is decided becomes its
    branch; nodes and initializers that nobody reads are gone. Functions whose results depend on
    sizes are inlined, since these are known at calls only.

    Args:
        model: The model, its domains normalised. After a refusal it must be thrown away.
        dims: Sizes by the name of a dimension; none to fold what the model itself fixes.
        one_opset: Whether functions built on another opset than the model must stay.
    """
    fixed, names = Fixed(), Names(model)
    before = len({node for _, _, node in nodes(model)})
    outputs = set(model.graph.outputs)
    named = {value: value.shape for value in values(model) if _is_named(value, outputs)}
    fix_dims(model, dims)
    correct_constants(model)  # exporters declare some wrongly; what they hold is what counts
    declared = {value for value in values(model) if value.shape is not None}
    try:
        _open_functions(model, names, one_opset=one_opset)
    except Refusal as refusal:
        fixed.notes.append(f"functions stay, and sizes in them are not fixed: {refusal.message}")
    for _ in range(_MOST_ROUNDS):
        inference = _inferred(model, named)
        if inference.report.conflicts:
            fixed.refused = [_contradiction(found, dims) for found in inference.report.conflicts]
            return fixed
        inference.annotate()
        changed = len(decide_branches(model, ConstantFolder(), names))
        changed += fold(model, names)
        changed += remove_unread(model)
        fixed.inference = inference
        if not changed or not inference.report.unknown:
            break
    _forget_symbolic(model, declared)
    fixed.folded = max(0, before - len({node for _, _, node in nodes(model)}))
    return fixed


def _open_functions(model: ir.Model, names: Names, *, one_opset: bool) -> None:
    """Inline the functions whose results depend on sizes, or on what bodies make of them."""
    opset = model.opset_imports.get("")
    kinds = (Trait.GIVES_SIZES, Trait.COUNTS, Trait.HAS_BODY)

    def depends(function: ir.Function) -> bool:
        if one_opset and function.opset_imports.get("", opset) != opset:
            return False
        of_nodes = map(traits, function.all_nodes())
        return any(found.sizes or found.any(*kinds) for found in of_nodes)

    inline_functions(model, depends, names)


def _is_named(value: ir.Value, outputs: set[ir.Value]) -> bool:
    """Return whether a result that no caller sees has a size in names."""
    if value.producer() is None or value.shape is None or value in outputs:
        return False
    return not value.shape.is_static()


def _inferred(model: ir.Model, named: Mapping[ir.Value, ir.Shape | None]) -> Inference:
    """Infer a model; what it says of results in names is forgotten where that cannot be.

    Exporters that join models, or edit them, leave names behind that mean other sizes.
    """
    inference = infer_model(model)
    if not inference.report.conflicts or not named:
        return inference
    for value, shape in named.items():
        if shape is not None and value.shape is not None:
            value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in shape])
    return infer_model(model)


def _contradiction(conflict: Conflict, dims: Mapping[str, int]) -> Diagnostic:
    """Return the refusal of sizes that cannot all be."""
    sizes = ", ".join(f"`{name}` = {size}" for name, size in dims.items())
    text = f"with {sizes}, {conflict.message}" if dims else conflict.message
    help = "give other sizes" if dims else "declare what is inferred"
    return Diagnostic("contradicting-sizes", "error", conflict.location, text, help)


def _forget_symbolic(model: ir.Model, declared: set[ir.Value]) -> None:
    """Remove inferred symbolic dimensions, in place, from values without a declared shape."""
    for value in values(model):
        if value.producer() is None or value.is_graph_output() or value in declared:
            continue
        if value.shape is not None and not value.shape.is_static():
            value.shape = None


# A rewrite of a model whose sizes are fixed: before it, so that rules know them, and behind it.


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
    """Fix sizes of a model and lower it, in place; if anything is refused it must be thrown away.

    `opset` is for a refusal before the rewrite. `static`: every size of the result has to be a
    number; `asks` says who asks for that, and why, where that is not the user. `keeps_opset`: nodes
    stay at the opset of the model, so that functions built on another one cannot be opened.
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
