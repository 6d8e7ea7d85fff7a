"""Nodes that came in the place of others: ScatterND and its indices in that of TensorScatter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.review.report import NodeFacts, Replacement
from onnx_kvtool.review.side import Side

__all__ = ["node_facts", "replacements"]


def node_facts(side: Side, node: ir.Node) -> NodeFacts:
    """Return a node with the names around it."""
    return NodeFacts(
        side.place(node),
        tuple("" if v is None else v.name or "" for v in node.inputs),
        tuple(v.name or "" for v in node.outputs),
    )


def replacements(
    sides: tuple[Side, Side],
    removed: Sequence[ir.Node],
    added: Sequence[ir.Node],
    rewired: Iterable[tuple[ir.Value | None, ir.Value | None]],
) -> tuple[list[Replacement], list[NodeFacts], list[NodeFacts]]:
    """Gather nodes that came by the node in whose place they did.

    One node came in the place of another when its output is read where that of the other was, or
    has its name. For a node of several outputs there may be one for each, and one for several
    nodes. With each go those that lead to nothing else; the last group is of those that lead to
    several of them.

    Args:
        sides: The models.
        removed: Nodes that went, each before those that read it.
        added: Nodes that came.
        rewired: What is read at one place in both models.

    Returns:
        The groups; the other nodes that went; those that came.
    """
    old_ends, new_ends = _ends(removed, added, (*rewired, *_same_names(removed, added)))
    led_old = _led_to(removed, old_ends)
    led_new = _led_to(added, new_ends)
    groups = [
        Replacement(
            tuple(node_facts(sides[0], node) for node in led_old.pop(group)),
            tuple(node_facts(sides[1], node) for node in led_new.pop(group)),
        )
        for group in dict.fromkeys(old_ends.values())
    ]
    facts = [
        [node_facts(side, node) for node in led.get(where, [])]
        for side, led in zip(sides, (led_old, led_new), strict=True)
        for where in ("several", None)
    ]
    if facts[0] or facts[2]:
        groups.append(Replacement(tuple(facts[0]), tuple(facts[2]), is_shared=True))
    return groups, facts[1], facts[3]


def _ends(
    removed: Iterable[ir.Node],
    added: Iterable[ir.Node],
    pairs: Iterable[tuple[ir.Value | None, ir.Value | None]],
) -> tuple[dict[ir.Node, int], dict[ir.Node, int]]:
    """Return the number of the group of each node that went or came with a counterpart.

    A value has one counterpart, the first; a node that has a group already brings that of another
    of its outputs into it.
    """
    gone, came = set(removed), set(added)
    old_ends: dict[ir.Node, int] = {}
    new_ends: dict[ir.Node, int] = {}
    paired: set[ir.Value] = set()
    count = 0
    for old, new in pairs:
        if old is None or new is None or old in paired or new in paired:
            continue
        one, other = old.producer(), new.producer()
        if one is None or other is None or one not in gone or other not in came:
            continue
        if one in old_ends and other in new_ends:
            continue
        group = old_ends.get(one, new_ends.get(other, count))
        count = max(count, group + 1)
        old_ends[one] = new_ends[other] = group
        paired |= {old, new}
    return old_ends, new_ends


def _same_names(
    removed: Iterable[ir.Node], added: Iterable[ir.Node]
) -> Iterable[tuple[ir.Value, ir.Value]]:
    made = {value.name: value for node in added for value in node.outputs if value.name}
    for node in removed:
        for value in node.outputs:
            if value.name in made:
                yield value, made[value.name]


def _led_to(
    nodes: Sequence[ir.Node], ends: Mapping[ir.Node, int]
) -> dict[int | str | None, list[ir.Node]]:
    """Return the nodes by the group that they lead to, or `several`; None for all others."""
    end_of: dict[ir.Node, int | str | None] = {}
    for node in reversed(nodes):
        if node in ends:
            end_of[node] = ends[node]
            continue
        reached: set[int | str | None] = set()
        for value in node.outputs:
            if value.is_graph_output():
                reached.add(None)
            reached.update(end_of.get(use.node) for use in value.uses())
        if len(reached) == 1:
            end_of[node] = reached.pop()
        else:
            end_of[node] = "several" if reached and None not in reached else None
    found: dict[int | str | None, list[ir.Node]] = {}
    for node in nodes:
        found.setdefault(end_of[node], []).append(node)
    return found
