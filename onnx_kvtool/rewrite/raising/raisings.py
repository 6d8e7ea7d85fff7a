"""The table of raisings: which rule reads an update off which operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.walk import maker
from onnx_kvtool.rewrite.raising.concat import raise_concat
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.rewrite.raising.scatters import (
    raise_one_hot_sum,
    raise_scatter_elements,
    raise_scatter_nd,
    raise_where,
)


class Raising(NamedTuple):
    """One rule.

    Attributes:
        may_be: Whether a look at a node and those above it leaves it possible that it is one, so
            that most nodes of a graph are never asked about.
        prove: Returns the update that a node is, or None for a node that is no candidate. Raises
            `Unproven` or `MalformedNode` for one that looks like an update and lacks a fact.
    """

    name: str
    may_be: Callable[[ir.Node], bool]
    prove: Callable[[Proof, ir.Node], ProvenUpdate | None]


def _any(node: ir.Node) -> bool:
    return True


def _is_sum_of_products(node: ir.Node) -> bool:
    return len(node.inputs) == 2 and all(maker(value, "Mul") for value in node.inputs)


def _is_beside_slices(node: ir.Node) -> bool:
    """Return whether a Concat has a slice at both ends, or at one end and one thing more."""
    ends = [maker(value, "Slice") is not None for value in (*node.inputs[:1], *node.inputs[-1:])]
    return (len(node.inputs) == 3 and all(ends)) or (len(node.inputs) == 2 and any(ends))


RAISINGS: Mapping[str, Raising] = Table(
    "raising",
    [
        ("Add", Raising("one_hot_sum", _is_sum_of_products, raise_one_hot_sum)),
        ("Concat", Raising("concat", _is_beside_slices, raise_concat)),
        ("ScatterElements", Raising("scatter_elements", _any, raise_scatter_elements)),
        ("ScatterND", Raising("scatter_nd", _any, raise_scatter_nd)),
        ("Where", Raising("where", _any, raise_where)),
    ],
)
