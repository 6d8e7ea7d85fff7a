"""Which element of which value another value holds, seen through operators that only move.

The index maps say what integers are. Queries, keys and scores are no integers, and what counts of
them is where their elements come from. So an operand of a movement stands for itself here, a symbol
`Element(operand, coordinates)`, and the rules that index maps have say which of them the result
holds at each coordinate: `Reshape(Expand(Unsqueeze(K)))` is K at head `h // g`, however written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.atoms import Element, Modulo, Quotient
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer, variable
from onnx_kvtool.symbolic.index_map import IndexMap
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.rules.element_site import ElementSite
from onnx_kvtool.symbolic.rules.table import element_rule
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["Seen", "Sight"]


@dataclass(frozen=True, slots=True)
class Seen:
    """Elements of a value, one for each point of a frame.

    Attributes:
        value: The value.
        index: The coordinate along each axis of the value, over the coordinates of the frame.
    """

    value: ir.Value
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of the values of a model.

    Attributes:
        maps: What integer values hold, and the shape of any value.
        knowledge: Sizes that are equal.
        opset: Version of the default domain.
        unpadded: Inputs that are granted to be 1 throughout, each with the text that grants it.
    """

    maps: IndexMaps
    knowledge: Knowledge
    opset: int
    unpadded: Mapping[ir.Value, str] = field(default_factory=dict)

    def shape(self, value: ir.Value) -> tuple[Expr, ...] | None:
        """Return the size of each axis, equal sizes by one expression; None without a rank."""
        shape = self.maps.shape(value)
        return None if shape is None else tuple(map(self.knowledge.equalities.resolved, shape))

    def view(self, node: ir.Node) -> NodeView | None:
        """Return a node of the default domain through its schema; None where that is impossible."""
        if node.domain != "":
            return None
        try:
            return NodeView(node, node.version if node.version is not None else self.opset)
        except MalformedNode:
            return None

    def aligned(
        self, seen: Seen, operand: ir.Value, shape: Sequence[Expr] | None = None
    ) -> Seen | None:
        """Return an operand of an elementwise node as its result is seen.

        Args:
            seen: The result.
            operand: The operand, which may be broadcast.
            shape: Shape of the result, where it is no other than that of `seen.value`.

        Returns:
            None where nobody knows whether an axis is broadcast.
        """
        whole = self.shape(seen.value) if shape is None else tuple(shape)
        part = self.shape(operand)
        if whole is None or part is None or len(part) > len(whole):
            return None
        index = []
        for size, result, at in zip(part[::-1], whole[::-1], seen.index[::-1], strict=False):
            if size != result and size.number != 1:
                return None
            index.append(integer(0) if size.number == 1 else at)
        return Seen(operand, tuple(reversed(index)))

    def above(self, seen: Seen, facts: Facts) -> Seen | None:
        """Return what is moved by the node that makes a value; None for any other node.

        Args:
            seen: The value.
            facts: What is known of the coordinates of the frame.
        """
        node = seen.value.producer()
        source = node.inputs[0] if node is not None and node.inputs else None
        if node is None or source is None or node.domain != "":
            return None
        if node.op_type == "Cast":
            same = source.dtype is not None and source.dtype == seen.value.dtype
            return Seen(source, seen.index) if same else None
        held = self._moved(node, source, seen.value)
        if held is None:
            return None
        known = dict(enumerate(seen.index))
        return Seen(source, tuple(_rejoined(substitute(p, known, facts)) for p in held))

    def _moved(self, node: ir.Node, source: ir.Value, output: ir.Value) -> tuple[Expr, ...] | None:
        """Return the coordinates in `source` of each element of `output`, over those of it."""
        kind = traits(node)
        if Trait.REARRANGES not in kind and Trait.REPEATS not in kind:
            return None
        rule = element_rule(node.op_type)
        if rule is None or len(node.outputs) != 1:
            return None
        view, before, after = self.view(node), self.shape(source), self.shape(output)
        if view is None or before is None or after is None:
            return None
        itself = variable(Element(source, tuple(map(coordinate, range(len(before))))))
        described = IndexMap.whole(before, output.dtype, itself)

        def operand(value: ir.Value) -> IndexMap:
            return described if value is source else self.maps.of(value)

        try:
            site = ElementSite(view, operand, self.shape, output.dtype, after, output)
            found = rule(site)
        except MalformedNode:
            return None
        element = None if found is None or found.element is None else found.element.atom
        if not isinstance(element, Element) or element.value is not source:
            return None
        return element.index


def _rejoined(expr: Expr) -> Expr:
    """Return an expression with `(a // n) * n + a % n` written as `a`, for numbers n."""
    terms = dict(expr.linear())
    for rest, count in terms.items():
        by = rest.by.number if isinstance(rest, Modulo) else None
        if not isinstance(rest, Modulo) or not by:
            continue
        whole = Quotient(rest.of, rest.by)
        if terms.get(whole) == count * by:
            return _rejoined(expr + (rest.of - variable(rest) - variable(whole) * by) * count)
    return expr
