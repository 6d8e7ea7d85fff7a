"""Attention over caches."""

from __future__ import annotations

from typing import TypeAlias

import onnx_ir as ir

from onnx_kvtool.analysis.attention.fusing import Fusion, is_candidate
from onnx_kvtool.analysis.caches.updates import AxisMap, compose, inverted, link, map_axis
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import subgraphs, values
from onnx_kvtool.core.words import counted, enumerated
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.layers import scatter_behind
from onnx_kvtool.lint.facts.operands import has_operator, limits_named
from onnx_kvtool.lint.finding import Findings, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.operators import Attention, TensorScatter
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.shapes.proven_attention import prove_within


@check("KV113")
def cache_without_nonpad_seqlen(site: Site, context: Context) -> Findings:
    """Search for a TensorScatter that makes keys or values."""
    view = site.view(Attention)
    if view is None or view.attn_mask is not None or view.nonpad_kv_seqlen is not None:
        return
    for what, operand in (("keys", view.key), ("values", view.value)):
        scatter = scatter_behind(operand)
        if scatter is None:
            continue
        if view.is_causal and given_input(scatter, 2) is None:  # it starts at row 0
            continue
        yield Found(
            site.location(operand),
            f"the {what} `{operand.name}` are the whole cache of `{scatter.name or 'unnamed'}` "
            "(TensorScatter), and neither `nonpad_kv_seqlen` nor `attn_mask` says which rows "
            "are valid",
            help="pass the number of valid rows as `nonpad_kv_seqlen`, or a mask",
        )
        return


@check("KV114")
def nonpad_with_past(site: Site, context: Context) -> Findings:
    """Read the node through its view."""
    view = site.view(Attention)
    if view is None or view.nonpad_kv_seqlen is None:
        return
    pasts = {"past_key": view.past_key, "past_value": view.past_value}
    given = [name for name, value in pasts.items() if value is not None]
    if given:
        yield Found(
            site.location(view.nonpad_kv_seqlen),
            f"`nonpad_kv_seqlen` `{view.nonpad_kv_seqlen.name}` is given together with "
            f"{enumerated(given)}",
            help="keep the cache outside, or leave `nonpad_kv_seqlen` out and mask the padding",
        )


@check("KV117")
def axis_differs_from_layout(site: Site, context: Context) -> Findings:
    """Map the axis of the update to the layout of the operand."""
    view = site.view(Attention)
    if view is None:
        return
    seen: set[int] = set()
    for operand in (view.key, view.value):
        if id(operand) in seen:
            continue
        seen.add(id(operand))
        rank = None if operand.shape is None else len(operand.shape)
        expected = {3: 1, 4: 2}.get(rank or 0)
        found = _written_axis(operand, site, context)
        if expected is None or found is None or found[1] == expected:
            continue
        scatter, axis = found
        yield Found(
            site.location(operand),
            f"`{operand.name}` is written along its axis {axis} by "
            f"`{scatter.name or 'unnamed'}` (TensorScatter), and Attention takes axis "
            f"{expected} of its {rank} dimensions as the sequence",
            help=f"set `axis` of the TensorScatter so that it becomes axis {expected} here",
        )


def _written_axis(value: ir.Value, site: Site, context: Context) -> tuple[ir.Node, int] | None:
    """Return the TensorScatter behind `value` and the axis of `value` along which it writes."""
    axes: AxisMap = "same"
    current = value
    for _ in range(8):
        node = current.producer()
        if node is not None and node.op_type == "TensorScatter" and not node.domain:
            try:
                written = TensorScatter(node, site.opset or 0).sequence_axis
            except MalformedNode:
                return None
            axis = map_axis(inverted(axes), written)
            return None if axis is None else (node, axis)
        found = link(current, context.folder)
        if found is None or found.how not in ("same", "view", "cast"):
            return None
        axes, current = compose(axes, found.axes), found.source
    return None


@check("KV208")
def decomposed_attention(context: Context) -> Findings:
    """Prove, as `raise` does, that an Attention computes the same as a Softmax and its products."""
    if not all(has_operator(target, "Attention-24") for target in context.targets):
        return
    found = _first_attention(context)
    if found is not None:
        site, fusion, count = found
        wrong = (limits_named(target, "attention-empty-rows") for target in context.targets)
        if fusion.mask != "none" and any(wrong):
            return
        queries, keys, values = (operand.value.name for operand in fusion.operands)
        more = f" ({counted(count - 1, 'more candidate')})" if count > 1 else ""
        yield Found(
            site.location(),
            f"computes from `{queries}`, `{keys}` and `{values}` in many nodes what one "
            f"Attention does{more}",
            help="run `kvtool raise`: it proves that both are equal and writes the Attention",
        )


_Nodes: TypeAlias = dict[ir.Graph, set[ir.Node]]

_MOST_ASKED = 2
"""Candidates that are asked: an encoder may have one of another kind before its layers."""

_FURTHEST = 4
"""Nodes behind a Softmax that may belong to its attention: the product, heads put together."""


def _first_attention(context: Context) -> tuple[Site, Fusion, int] | None:
    """Return the first Softmax that an Attention could stand for, and the number of candidates.

    If the sizes inferred so far are not enough, they are inferred of the needed nodes alone. The
    layers of a model are alike, and proving all of them, as `raise` does, takes longer than a
    check. Nothing stays on the values of the model.
    """
    model = context.model
    sites = [
        site
        for site in context.sites_of("Softmax")
        if site.root is model.graph and is_candidate(site.node)
    ]
    if not sites or "" not in model.opset_imports:
        return None
    before: list[tuple[ir.Value, ir.TypeProtocol | None]] = []
    try:
        for site in sites[:_MOST_ASKED]:
            sizes = context.inferred.run
            found = None if sizes is None else prove_within(sizes, site.node)
            if not isinstance(found, Fusion):  # may rest on less than all nodes do
                before = before or [(value, value.type) for value in values(model)]
                part = Forward(model, {}, {}, _needed(site.node, context))
                part.run()
                found = prove_within(part, site.node)
            if isinstance(found, Fusion):
                return site, found, len(sites)
    except KvtoolError:  # of a model that contradicts itself nothing is known
        return None
    finally:
        for value, type_ in before:
            value.type = type_
    return None


def _needed(softmax: ir.Node, context: Context) -> _Nodes | None:
    """Return the nodes a few steps behind a Softmax, with all that they are computed from.

    Of the branches of an If around it only these are needed. None in another body: what its inputs
    are depends on all of it.
    """
    needed: _Nodes = {}
    stack = reached = [softmax]
    for _ in range(_FURTHEST):
        reached = [use.node for node in reached for v in node.outputs for use in v.uses()]
        stack = [*stack, *reached]
    main, graph = context.model.graph, softmax.graph
    ifs = [site.node for site in context.sites_of("If")] if graph is not main else []
    around = {body: node for node in ifs for _, body in subgraphs(node)}
    while graph is not main:
        if not isinstance(graph, ir.Graph) or graph not in around:
            return None
        owner = around[graph]
        needed |= {body: set() for _, body in subgraphs(owner)}
        stack.append(owner)
        graph = owner.graph
    needed[main] = set()
    while stack:
        node = stack.pop()
        found = needed.get(node.graph) if isinstance(node.graph, ir.Graph) else None
        if found is None or node in found:
            continue
        found.add(node)
        stack += _makers(node)
        for _, body in subgraphs(node):
            if body not in needed:
                stack += [made for inner in body.all_nodes() for made in _makers(inner)]
                stack += [made for v in body.outputs if (made := v.producer())]
    return needed


def _makers(node: ir.Node) -> list[ir.Node]:
    return [made for v in node.inputs if v is not None and (made := v.producer())]
