"""Nodes, inputs, outputs, initializers and functions of a model."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Sequence
from functools import partial

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import function_path, graph_path, producer, remove_node
from onnx_kvtool.core.words import counted
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check

_MOST_CALLS = 100
_MOST_FUNCTIONS = 10_000


@check("MD403")
def unused_initializer(context: Context) -> Findings:
    """Find initializers without readers."""
    for path, graph, value in _unused_initializers(context):
        tensor = value.const_value
        size = "" if tensor is None else f" ({tensor_bytes(tensor):,} bytes)"
        yield Found(
            Location(path, value=value.name),
            f"nothing reads the initializer `{value.name}`{size}",
            help="remove it",
            fix=_removal(graph, value),
        )


def _removal(graph: ir.Graph, value: ir.Value) -> Fix | None:
    if value.is_graph_input():
        return None

    def apply() -> None:
        is_there = graph.initializers.get(value.name or "") is value
        if is_there and not value.uses() and not value.is_graph_output():
            del graph.initializers[value.name or ""]

    return Fix("safe", f"remove the initializer `{value.name}`", apply)


@check("MD404")
def unused_input_or_dead_node(context: Context) -> Findings:
    """Find inputs and nodes without readers."""
    graph = context.model.graph
    unused = [
        value
        for value in graph.inputs
        if value.name and not (value.uses() or value.is_graph_output())
        if not value.is_initializer() and not context.origin.training
    ]
    if unused:
        others = f" and {counted(len(unused) - 1, 'other input')}" if len(unused) > 1 else ""
        name = f"`{unused[0].name}`{others}"
        yield Found(
            Location(graph_path(graph.name), value=unused[0].name),
            f"nothing reads the input {name}",
            help="remove it, or connect its outputs",
            fix=Fix("unsafe", f"remove the input {name}", partial(_remove_inputs, graph, unused)),
        )
    dead: dict[str, list[tuple[Site, list[ir.Node]]]] = {}
    for site, feeding in _dead_ends(context):
        dead.setdefault(site.path, []).append((site, feeding))
    for ends in dead.values():
        first, before = ends[0][0], len(ends[0][1])
        found = [node for site, feeding in ends for node in (site.node, *feeding)]
        nodes = len(found)
        more = f", nor the results of {counted(before, 'node')} before it" if before else ""
        if len(ends) > 1:
            more += f", nor those of {counted(nodes - 1 - before, 'other node')} of the graph"
        names = ", ".join(f"`{v.name}`" for v in first.node.outputs if v.name)
        yield Found(
            first.location(),
            f"nothing reads {names or 'its outputs'}{more}",
            help="remove the node, or connect its result",
            fix=Fix("safe", f"remove {counted(nodes, 'dead node')}", partial(_remove_nodes, found)),
        )


def _remove_inputs(graph: ir.Graph, unused: Sequence[ir.Value]) -> None:
    removed = {v for v in unused if not v.uses() and not v.is_graph_output()}
    graph.inputs[:] = [value for value in graph.inputs if value not in removed]


def _remove_nodes(nodes: Sequence[ir.Node]) -> None:
    # Each time readers before what they read, so that nothing is removed that is needed now.
    for node in nodes:
        is_needed = any(v.uses() or v.is_graph_output() for v in node.outputs)
        if node.graph is not None and not is_needed:
            remove_node(node)


@check("MD405")
def duplicate_node_name(context: Context) -> Findings:
    """Collect the names of each graph."""
    first: dict[tuple[str, str], int] = {}
    names: set[str | None] | None = None
    for site in context.sites:
        name = site.node.name
        if not name:
            continue
        earlier = first.setdefault((site.path, name), site.index)
        if earlier != site.index:
            if names is None:
                names = {other.node.name for other in context.sites}
            yield Found(
                site.location(),
                f"nodes {earlier} and {site.index} of the graph are both called `{name}`",
                help="give each node its own name, or none",
                fix=Fix("safe", "rename the later node", partial(_rename, site.node, names)),
            )


def _rename(node: ir.Node, taken: set[str | None]) -> None:
    if node.graph is None or not node.name:
        return
    count = 1
    while f"{node.name}_{count}" in taken:
        count += 1
    node.name = f"{node.name}_{count}"
    taken.add(node.name)


@check("MD413")
def empty_graph(context: Context) -> Findings:
    """Count the nodes of the main graph."""
    graph = context.model.graph
    if not len(graph):
        yield Found(
            Location(graph_path(graph.name)),
            "the main graph has no nodes",
            help="export the model again, with the outputs that it has to compute",
        )


@check("MD431")
def empty_node(context: Context) -> Findings:
    """Look at the ends of each node."""
    for site in context.sites:
        if not site.node.inputs and not site.node.outputs:
            yield Found(
                site.location(),
                f"`{site.node.op_type}` has neither inputs nor outputs",
                help="remove the node",
            )


@check("MD432")
def missing_graph_name(context: Context) -> Findings:
    """Look at the name of the main graph and of each body."""
    functions = {id(function.graph) for function in context.model.functions.values()}
    for path, graph in context.graphs:
        if graph.name or id(graph) in functions:
            continue
        name = "main_graph" if graph is context.model.graph else "body"
        fix = Fix("safe", f"call the graph `{name}`", partial(setattr, graph, "name", name))
        yield Found(Location(path), "the graph has no name", help="name it", fix=fix)


@check("MD433")
def untyped_interface(context: Context) -> Findings:
    """Check the declaration of each input and output of the model."""
    graph = context.model.graph
    path = graph_path(graph.name)
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        for value in values:
            given, shape = context.declared(value)
            if given is None or (_has_elements(given) and given.dtype.name == "UNDEFINED"):
                problem, severity = "declares no type", None
            elif shape is None and _has_elements(given):
                problem, severity = "declares no shape", "warning"
            else:
                continue
            yield Found(
                Location(path, value=value.name),
                f"the {what} `{value.name}` {problem}",
                help="declare it, with unknown dimensions where they vary",
                severity=severity,  # type: ignore[arg-type]
            )


def _has_elements(given: ir.TypeProtocol | None) -> bool:
    return type(given).__name__ in ("TensorType", "SparseTensorType")


@check("MD443")
def deep_call_chain(context: Context) -> Findings:
    """Find the longest chain, callees first."""
    functions = context.model.functions
    if len(functions) > _MOST_FUNCTIONS:
        yield Found(
            Location(),
            f"the model has {len(functions):,} functions, and {_MOST_FUNCTIONS:,} are allowed",
            help="inline the functions that are called once",
        )
    if len(functions) <= _MOST_CALLS:
        return
    keys = {id(function.graph): key for key, function in functions.items()}
    calls: dict[tuple[str, str, str], set[tuple[str, str, str]]] = {key: set() for key in functions}
    for site in context.sites:
        caller, callee = keys.get(id(site.root)), site.node.op_identifier()
        if caller is not None and callee in functions:
            calls[caller].add(callee)
    try:
        order = list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError:
        return
    depth: dict[tuple[str, str, str], int] = {}
    for key in order:
        depth[key] = 1 + max((depth[callee] for callee in calls[key]), default=0)
    deepest = max(order, key=lambda key: depth[key])
    if depth[deepest] > _MOST_CALLS:
        yield Found(
            Location(function_path(*deepest)),
            f"calls of functions are {depth[deepest]} deep from here, and {_MOST_CALLS} are "
            "allowed",
            help="inline the functions that are called once",
        )


_QUANTIZATION = "quant_parameter_tensor_names"
"""Where onnx_ir keeps the names that the quantization annotation of a value refers to."""

_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})


def _named_elsewhere(context: Context) -> frozenset[str]:
    """Return the names of values that are used although no node reads them.

    These are the scales and zero points of quantization annotations.
    """
    names: set[str] = set()
    for _, graph in context.graphs:
        outputs = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *outputs):
            if value.meta and (found := value.meta.get(_QUANTIZATION)):
                names.update(found.values())
    return frozenset(names)


def _unused_initializers(context: Context) -> Iterator[tuple[str, ir.Graph, ir.Value]]:
    """Yield each initializer that no node reads, bodies included, and no graph returns.

    With the path of its graph. A model with training information, which names values, has none.
    """
    if context.origin.training:
        return
    named: frozenset[str] | None = None
    for path, graph in context.graphs:
        for value in graph.initializers.values():
            if value.uses() or value.is_graph_output():
                continue
            if named is None:
                named = _named_elsewhere(context)
            if value.name not in named:
                yield path, graph, value


def _dead_ends(context: Context) -> Iterator[tuple[Site, list[ir.Node]]]:
    """Yield the nodes whose outputs nobody reads and no graph returns, in the order of the model.

    Each with the nodes of its graph that compute something for it, or for such nodes, alone.
    Nodes of unknown domains may have effects outside the model and count as needed; so does every
    node of a model with training information. Linear in the number of nodes.
    """
    if context.origin.training:
        return
    claimed: set[ir.Node] = set()
    ends = [site for site in context.sites if _is_dead(site.node, context, claimed)]
    claimed.update(site.node for site in ends)
    for site in ends:
        feeding: list[ir.Node] = []
        stack = [site.node]
        while stack:
            for value in stack.pop().inputs:
                node = producer(value)
                if node is None or node in claimed or node.graph is not site.node.graph:
                    continue
                if _is_dead(node, context, claimed):
                    claimed.add(node)
                    feeding.append(node)
                    stack.append(node)
        yield site, feeding


def _is_dead(node: ir.Node, context: Context, dead: set[ir.Node]) -> bool:
    # In the order that leaves soonest where a node is needed, as nearly all are.
    for value in node.outputs:
        if value.is_graph_output():
            return False
        for reader, _ in value.uses():
            if reader not in dead:
                return False
    if not node.outputs:
        return False
    return node.domain in _KNOWN_DOMAINS or node.op_identifier() in context.model.functions
