"""Attention in many nodes that is proven to be what one Attention computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.analysis.attention.fusing import Fusion, is_candidate
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import values
from onnx_kvtool.shapes.attention import prove_each

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site

__all__ = ["first_attention"]

_MOST_ASKED = 2
"""Candidates that are asked: an encoder may have one of another kind before its layers."""

_FURTHEST = 4
"""Nodes behind a Softmax that may belong to its attention: the product, heads put together."""


def first_attention(context: Context) -> tuple[Site, Fusion, int] | None:
    """Return the first Softmax that an Attention could stand for, and the number of candidates.

    Sizes are inferred of the nodes that it needs alone: the layers of a model are alike, and what
    `raise` proves of all of them takes longer than a check. Nothing stays on the values of the
    model.
    """
    model = context.model
    sites = [
        site
        for site in context.sites_of("Softmax")
        if site.root is model.graph and is_candidate(site.node)
    ]
    if not sites or "" not in model.opset_imports:
        return None
    before = [(value, value.type) for value in values(model)]
    try:
        for site in sites[:_MOST_ASKED]:
            only = _needed(site.node) if site.node.graph is model.graph else None
            (found,) = prove_each(model, [site.node], "auto", only=only)
            if isinstance(found, Fusion):
                return site, found, len(sites)
    except KvtoolError:  # of a model that contradicts itself nothing is known
        return None
    finally:
        for value, type_ in before:
            value.type = type_
    return None


def _needed(softmax: ir.Node) -> set[ir.Node]:
    """Return the nodes a few steps behind a Softmax, with all that they are computed from."""
    stack = reached = [softmax]
    for _ in range(_FURTHEST):
        reached = [use.node for node in reached for v in node.outputs for use in v.uses()]
        stack = [*stack, *reached]
    needed: set[ir.Node] = set()
    while stack:
        node = stack.pop()
        if node not in needed and node.graph is softmax.graph:
            needed.add(node)
            stack += [made for v in node.inputs if v is not None and (made := v.producer())]
    return needed
