"""Refusals sorted by what they come from: one for each cause, none for its consequences."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.symbolic.knowledge import Lost

__all__ = ["Cause", "by_cause", "cause_of"]

_CONSEQUENCES = frozenset(
    {
        *("changed-meaning", "dynamic-input", "new-operator", "no-rule"),
        *("unknown-dimension", "unknown-element-type", "unknown-rank"),
    }
)
"""Codes of refusals that a type or rank which is not known may bring about."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a node lacks, and where that was lost.

    Attributes:
        what: `element type` or `rank`.
        lost: Where and why.
    """

    what: str
    lost: Lost


def cause_of(
    node: ir.Node, place: Location, code: str, lost: Mapping[ir.Value, Lost]
) -> Cause | None:
    """Return what made the refusal of a node unavoidable; None where it is a cause itself.

    A node that is refused says itself why its own results have no rank, as Unsqueeze with axes
    whose number is unknown.

    Args:
        node: The node.
        place: Where it stands.
        code: Why it was refused.
        lost: Where and why types and ranks were lost, by value.
    """
    if code not in _CONSEQUENCES:
        return None
    for value in (*node.inputs, *node.outputs):
        if value is not None and value in lost and _node(lost[value].location) != _node(place):
            if value.type is None:
                return Cause("element type", lost[value])
            if value.shape is None:
                return Cause("rank", lost[value])
    return None


def by_cause(refused: Sequence[Diagnostic], causes: Mapping[int, Cause]) -> list[Diagnostic]:
    """Return refusals of which none is the consequence of another, in the order of the graph.

    Args:
        refused: Every refusal.
        causes: What brought it about, by its position; those that are causes themselves are absent.
    """
    own = {_node(one.location) for i, one in enumerate(refused) if i not in causes}
    behind: dict[Hashable, tuple[Cause, list[Diagnostic]]] = {}
    result: list[Diagnostic | tuple[Cause, list[Diagnostic]]] = []
    for position, refusal in enumerate(refused):
        cause = causes.get(position)
        if cause is None:
            result.append(refusal)
        elif _node(cause.lost.location) not in own:
            key = _key(cause.lost)
            if key not in behind:
                behind[key] = (cause, [])
                result.append(behind[key])
            behind[key][1].append(refusal)
    return [one if isinstance(one, Diagnostic) else _told(*one) for one in result]


def _node(place: Location) -> tuple[str, int | None]:
    return place.graph, place.index


def _key(lost: Lost) -> Hashable:
    """Return what two losses of one cause share: an operator that nobody knows, or the value."""
    if lost.code == "unknown-operator":
        return lost.why
    return (*_node(lost.location), lost.location.value)


_HELP = {
    "malformed": "check the node in the exporter; `kvtool check` finds every one",
    "unknown-operator": "declare the types and shapes of its results, as `value_info`",
}


def _told(cause: Cause, behind: Sequence[Diagnostic]) -> Diagnostic:
    """Return the refusal that names a cause in place of the nodes that suffer from it."""
    first, lost = behind[0], cause.lost
    if len(behind) == 1 and lost.code == "undeclared":
        return first  # which says what of the input it needs, and what would do instead
    needs = (
        f"which {first.location} needs"
        if len(behind) == 1
        else f"which {len(behind)} nodes need, the first of them {first.location}"
    )
    # A broken node is broken at every opset.
    opsets = [None if lost.code == "malformed" else refusal.lowest_opset for refusal in behind]
    known = [opset for opset in opsets if opset is not None]
    return Diagnostic(
        lost.code if lost.code in _HELP else f"unknown-{cause.what.replace(' ', '-')}",
        "error",
        lost.location,
        f"{lost.why}, so that the {cause.what} of `{lost.location.value}` is not known, {needs}",
        _HELP.get(lost.code, "declare type and shape of the value, as `value_info`"),
        max(known) if len(known) == len(opsets) else None,
    )
