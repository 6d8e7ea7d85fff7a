"""Attention in many nodes, proven with the sizes that inference finds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.attention.fusing import Fusion, MayBeEmpty, prove
from onnx_kvtool.analysis.attention.sight import Sight
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.expression import Expr

__all__ = ["prove_each"]

_MOST_RUNS = 4
"""Most times that a model is inferred anew, for sizes that may be 0."""

_Answer = Fusion | Unproven | MalformedNode


def prove_each(
    model: ir.Model, softmaxes: Sequence[ir.Node], choice: AttentionChoice
) -> list[_Answer]:
    """Return what the attention around each Softmax becomes, or what is missing.

    Inference takes a size that a Reshape asks for to be at least 1, and all that it says may rest
    on that. What must hold where this size is 0 as well is proven once more without it: an encoder
    of no tokens has no say in the self attention of a decoder.

    Args:
        model: The model. Values without a type get the one that is found, nothing else changes.
        softmaxes: Candidates.
        choice: What the user wants.

    Raises:
        KvtoolError: If the sizes of the model cannot be inferred.
    """
    found = _run(model, softmaxes, choice, ())
    for _ in range(_MOST_RUNS):
        empty = next((one.sizes for one in found if isinstance(one, MayBeEmpty)), None)
        if empty is None:
            break
        again = [n for n, one in enumerate(found) if _is_lacking(one, empty)]
        for place, one in zip(
            again, _run(model, [softmaxes[n] for n in again], choice, empty), strict=True
        ):
            # What this lacks is said as it was found first, and is not asked for again.
            found[place] = one if isinstance(one, Fusion) else Unproven(*_said(found[place]))
    return found


def _is_lacking(one: _Answer, empty: tuple[Expr, ...]) -> bool:
    return isinstance(one, MayBeEmpty) and one.sizes == empty


def _said(one: _Answer) -> tuple[str, str]:
    assert not isinstance(one, Fusion)
    return one.code, one.message


def _run(
    model: ir.Model,
    softmaxes: Sequence[ir.Node],
    choice: AttentionChoice,
    empty: Collection[Expr],
) -> list[_Answer]:
    knowledge = (run := infer_model(model, may_be_empty=empty).run).knowledge
    if knowledge.conflicts:
        text = f"sizes contradict each other: {knowledge.conflicts[0].message}"
        return [Unproven("contradiction", text) for _ in softmaxes]
    opset = model.opset_imports[""]
    sight = Sight(run.contents(opset), knowledge, opset)
    return [_one(softmax, sight, choice) for softmax in softmaxes]


def _one(softmax: ir.Node, sight: Sight, choice: AttentionChoice) -> _Answer:
    try:
        return prove(softmax, sight, choice)
    except (Unproven, MalformedNode) as missing:
        return missing
