"""Rules and their context, refusals by cause, and removal of unread nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.choices import Bounds, IndexDtype, Via
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.emit.emitter import release
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.knowledge import Lost

if TYPE_CHECKING:
    from onnx_kvtool.analysis.constants import ConstantFolder
    from onnx_kvtool.emit.emitter import Emitter, Replacement
    from onnx_kvtool.targets.limits import ReleaseLimits


# Rules and their context.


@dataclass(frozen=True, slots=True)
class Options:
    """The caller's choices about the form of the result.

    Attributes:
        via: Form of a lowered TensorScatter.
        index_dtype: Element type of ScatterElements indices; `int32` excludes ScatterND.
        bounds: Whether a start that TensorScatter refuses must fail in the result too.
        branches: Whether an If may choose between two forms at run time; not below opset 11, where
            both branches have to give equal shapes.
    """

    via: Via = "auto"
    index_dtype: IndexDtype = "int64"
    bounds: Bounds = "checked"
    branches: bool = True


@dataclass(frozen=True, slots=True)
class LoweringContext:
    """The context of one legalisation, for its rules.

    Attributes:
        keep_fused: Whether an operator that the target has in some form is kept in that form.
        limits: What the release that must load the result cannot be given; None when the opset is
            the only limit. The engine asks again with `keep_fused` off for their nodes.
    """

    opset: int
    target: int
    options: Options
    folder: ConstantFolder
    keep_fused: bool = True
    limits: ReleaseLimits | None = None

    def opset_of(self, node: ir.Node) -> int:
        """Return the opset of `node`: its own tag, or that of the graph."""
        return node.version if node.version is not None else self.opset


class Rewritten(NodeView):
    """A node to rewrite, read by the schema of its own opset."""

    def __init__(self, node: ir.Node, context: LoweringContext) -> None:
        super().__init__(node, context.opset_of(node))
        self.context = context

    def known(self, value: ir.Value | None) -> np.ndarray | None:
        """Return the elements of a few integers; None where they are not constant."""
        return self.context.folder.integers(value)


class RewriteRule(Protocol):
    """A rule of one operator: a line of the table of lowerings, or of that of upgrades."""

    @property
    def name(self) -> str:
        """The name of the rule in the report."""

    @property
    def apply(self) -> Callable[[Rewritten, Emitter], ir.Value | Replacement | None]:
        """Guard, then emit.

        Raises `Refusal` or `MalformedNode` before anything is edited; returns None where the rule
        has nothing to say.
        """

    def applies(self, opset: int, target: int, forced: bool) -> bool:
        """Return whether the rule takes a node of `opset` to `target`.

        `forced`: the caller wants the operator gone although the target has it.
        """


# Refusals by cause: one for each cause, none for its consequences.


_CONSEQUENCES = frozenset(
    {
        *("changed-meaning", "dynamic-input", "new-operator", "no-rule"),
        *("unknown-dimension", "unknown-element-type", "unknown-rank"),
    }
)
"""Codes of refusals that a type or rank which is unknown may bring about."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A fact that a node lacks (`element type` or `rank`), and where it was lost."""

    what: str
    lost: Lost


def cause_of(
    node: ir.Node, place: Location, code: str, lost: Mapping[ir.Value, Lost]
) -> Cause | None:
    """Return the cause of the refusal of a node; None if the node is the cause itself.

    `code` says why it was refused, `lost` where and why types and ranks were lost, by value.
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
    """Return the refusals that do not follow from another one, in graph order.

    `causes` has what brought a refusal about, by its position.
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
    """Return the key of a cause: an unknown operator, or the value."""
    if lost.code == "unknown-operator":
        return lost.why
    return (*_node(lost.location), lost.location.value)


_HELP = {
    "malformed": "check the node in the exporter; `kvtool check` finds every one",
    "unknown-operator": "declare the types and shapes of its results, as `value_info`",
}


def _told(cause: Cause, behind: Sequence[Diagnostic]) -> Diagnostic:
    """Return one refusal for a cause, instead of those of its consequences."""
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
        f"{lost.why}, so that the {cause.what} of `{lost.location.value}` is unknown, {needs}",
        _HELP.get(lost.code, "declare type and shape of the value, as `value_info`"),
        max(known) if len(known) == len(opsets) else None,
    )


# Removing unread nodes and constants.


def remove_dead(
    nodes: Iterable[ir.Node], stays: Callable[[ir.Node], bool] = lambda node: False
) -> int:
    """Remove nodes whose outputs are unread, then what only they read, and so on upwards.

    Nodes that were dead before and served nobody stay, as does everything that is read elsewhere.
    A constant that only removed nodes read goes too, unless the caller may supply it.

    Returns:
        How many nodes were removed.
    """
    pending = list(nodes)
    dead: dict[ir.Graph, dict[ir.Node, None]] = {}
    while pending:
        node = pending.pop()
        graph = node.graph
        if graph is None or node in dead.setdefault(graph, {}):
            continue
        if any(is_needed(output) for output in node.outputs) or stays(node):
            continue
        dead[graph][node] = None
        for value in release(node):
            producer = value.producer()
            if producer is not None:
                pending.append(producer)
            elif value.is_initializer() and not value.is_graph_input() and not is_needed(value):
                holder = value.graph
                if holder is not None and value.name is not None:
                    holder.initializers.pop(value.name, None)
    # At once, because each removal looks at all outputs of the graph.
    for graph, gone in dead.items():
        graph.remove(gone)
    return sum(map(len, dead.values()))


def constants_of(model: ir.Model) -> set[ir.Value]:
    """Return the initializers of all graphs."""
    return {value for _, graph in graphs(model) for value in graph.initializers.values()}


def remove_unread_constants(model: ir.Model, before: Collection[ir.Value] = ()) -> None:
    """Remove unread initializers that no caller may supply, except those of `before`, in place."""
    for _, graph in graphs(model):
        for name, value in tuple(graph.initializers.items()):
            if not (value in before or is_needed(value) or value.is_graph_input()):
                del graph.initializers[name]


def is_needed(value: ir.Value) -> bool:
    """Return whether a node reads a value, or a graph gives it."""
    return bool(value.uses()) or value.is_graph_output()
