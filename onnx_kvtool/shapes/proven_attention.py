"""Attention in many nodes, proven with the sizes that inference finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import Sight
from onnx_kvtool.analysis.attention.fusing import Fusion, MayBeEmpty, prove
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.core.walk import is_op, maker, nodes, subgraphs
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.expressions import Dimension, Expr, integer
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.simplification import Facts

_MOST_RUNS = 4
"""Most times that a model is inferred anew, for sizes that may be 0, or that a branch knows."""

_Answer = Fusion | Unproven | MalformedNode
_Sizes = tuple[tuple[str, int], ...]

Rows = Mapping[tuple[ir.Value, ir.Value, int], int]
"""The most rows that caches may have that grow by at least one: past, present and the axis."""

Granted = tuple[Mapping[ir.Value, str], Rows]
"""Inputs that are 1 throughout, and the most rows of values."""


def prove_each(
    model: ir.Model,
    softmaxes: Sequence[ir.Node],
    choice: AttentionChoice,
    granted: Granted,
) -> list[_Answer]:
    """Return what the attention around each Softmax becomes, or what is missing.

    Two kinds of candidates that lack a fact are asked once more:

    - Inference takes a size that a Reshape asks for to be at least 1, and all that it says may rest
      on that. What must hold where this size is 0 as well is proven without it: an encoder of no
      tokens has no say in the self attention of a decoder. Sizes that are unknown without it are
      left unknown where that does, since each stage of an encoder asks for those of the last.
    - In a branch that is taken where a size is one number, the size is that number.

    Args:
        model: The model. Values without a type get the one that is found, nothing else changes.
        softmaxes: Candidates.
        choice: What the user wants.
        granted: Inputs that are 1 throughout, each with the text that grants it, and the most rows
            of caches that grow: in the result, none has more than its capacity.

    Raises:
        KvtoolError: If the sizes of the model cannot be inferred.
    """
    first = _Run.of(model, choice, granted)
    found = [first.prove(softmax) for softmax in softmaxes]
    empty: dict[frozenset[Expr], list[int]] = {}
    taken: dict[_Sizes, list[int]] = {}
    branches = _branches(model, first) if any(not isinstance(o, Fusion) for o in found) else {}
    for place, one in enumerate(found):
        if isinstance(one, MayBeEmpty):
            empty.setdefault(frozenset(one.sizes), []).append(place)
        elif not isinstance(one, Fusion) and (sizes := branches.get(softmaxes[place].graph)):
            taken.setdefault(sizes, []).append(place)
    for sizes, places in [*taken.items()][:_MOST_RUNS]:
        run = _Run.of(model, choice, granted, dims=dict(sizes))
        _ask(run, places, softmaxes, found)
    _ask_without(model, choice, granted, empty, softmaxes, found)
    return found


def prove_within(run: Forward, softmax: ir.Node) -> _Answer:
    """Return what the attention around a Softmax becomes by what one inference found."""
    return _Run(run, "auto", ({}, {})).prove(softmax)


def _ask_without(
    model: ir.Model,
    choice: AttentionChoice,
    granted: Granted,
    empty: Mapping[frozenset[Expr], list[int]],
    softmaxes: Sequence[ir.Node],
    found: list[_Answer],
) -> None:
    """Ask again where sizes may be 0, first without what comes from sizes that are unknown then."""
    waiting = [(sizes, True, places) for sizes, places in empty.items()]
    for _ in range(2 * _MOST_RUNS):
        if not waiting:
            break
        without, unnamed, places = waiting.pop(0)
        run = _Run.of(model, choice, granted, may_be_empty=without, unnamed_may_be_empty=unnamed)
        more: dict[tuple[frozenset[Expr], bool], list[int]] = {}
        for place, again in _ask(run, places, softmaxes, found):
            sizes = frozenset(again.sizes) if isinstance(again, MayBeEmpty) else frozenset()
            if not isinstance(again, Fusion) and (unnamed or not sizes <= without):
                key = without | sizes, not sizes <= without
                more.setdefault(key, []).append(place)
        waiting += [(*key, places) for key, places in more.items()]


def _ask(
    run: _Run, places: Sequence[int], softmaxes: Sequence[ir.Node], found: list[_Answer]
) -> list[tuple[int, _Answer]]:
    """Put what a run proves in the place of what was not; return all of its answers."""
    answers = [(place, run.prove(softmaxes[place])) for place in places]
    for place, again in answers:
        if isinstance(again, Fusion):
            found[place] = again
    return answers


class _Run:
    """One inference of a model, and what is proven with it."""

    @staticmethod
    def of(
        model: ir.Model,
        choice: AttentionChoice,
        granted: Granted,
        *,
        dims: Mapping[str, int] | None = None,
        may_be_empty: frozenset[Expr] = frozenset(),
        unnamed_may_be_empty: bool = False,
    ) -> _Run:
        def infer(bounds: Facts | None = None) -> _Run:
            known = Knowledge(
                may_be_empty=may_be_empty,
                unnamed_may_be_empty=unnamed_may_be_empty,
                bounds=bounds or Facts(),
            )
            return _Run(infer_model(model, dims, known).run, choice, granted)

        found = infer()
        bounds = found.sight.bounds
        may_say_more = bounds.nonnegative and found.sight.knowledge.may_say_more
        return infer(bounds) if may_say_more else found

    def __init__(self, run: Forward, choice: AttentionChoice, granted: Granted) -> None:
        opset = run.model.opset_imports[""]
        unpadded, rows = granted
        maps = run.contents(opset)
        known: list[Expr] = []
        for (past, present, axis), most in rows.items():
            before, after = maps.shape(past), maps.shape(present)
            if before is not None and after is not None:
                equal = run.knowledge.equalities
                total = equal.resolved(after[axis])
                known += [integer(most) - total, total - equal.resolved(before[axis]) - 1]
        bounds = Facts(nonnegative=tuple(dict.fromkeys(known)))
        self.sight = Sight(maps, run.knowledge, opset, unpadded, bounds)
        self.choice = choice

    def prove(self, softmax: ir.Node) -> _Answer:
        conflicts = self.sight.knowledge.conflicts
        if conflicts:
            text = f"sizes contradict each other: {conflicts[0].message}"
            return Unproven("contradiction", text)
        try:
            return prove(softmax, self.sight, self.choice)
        except (Unproven, MalformedNode) as missing:
            return missing


def _branches(model: ir.Model, run: _Run) -> dict[ir.Graph | ir.Function | None, _Sizes]:
    """Return the sizes that are one number wherever a graph is run, by the graph."""
    found: dict[ir.Graph | ir.Function | None, _Sizes] = {}
    for _, _, node in nodes(model):
        for name, body in subgraphs(node):
            around = found.get(node.graph, ())
            is_taken = is_op(node, "If") and name == "then_branch"
            found[body] = (*around, *_demanded(node.inputs[0], run.sight)) if is_taken else around
    return found


def _demanded(condition: ir.Value | None, sight: Sight) -> _Sizes:
    """Return the size that is compared with a number, and the number; empty for anything else."""
    test = maker(condition, "Equal")
    if test is None:
        return ()
    sides = [None if v is None else sight.maps.of(v).scalar() for v in test.inputs]
    for size, number in (sides, sides[::-1]):
        if size is None or number is None or number.number is None:
            continue
        if isinstance(size.atom, Dimension) and number.number > 0:
            return ((size.atom.name, number.number),)
    return ()
