"""Every graph, node and tensor of a model, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location

_GRAPH = ir.AttributeType.GRAPH
_GRAPHS = ir.AttributeType.GRAPHS
_TENSOR = ir.AttributeType.TENSOR
_TENSORS = ir.AttributeType.TENSORS


def graph_path(name: str | None) -> str:
    """Return the path of a main graph of this name; `main_graph` for one without a name."""
    return name or "main_graph"


def function_path(domain: str, name: str, overload: str = "") -> str:
    """Return the path of a function's graph: `domain::name`, and `:overload` if it has one."""
    return f"{domain}::{name}:{overload}" if overload else f"{domain}::{name}"


def step_path(path: str, node: str | None, index: int, attribute: str) -> str:
    """Return the path of a body: `<path>/<node>.<attribute>`; an unnamed node is `#<index>`.

    One of several bodies has `[i]` behind its attribute.
    """
    return f"{path}/{node or f'#{index}'}.{attribute}"


def subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield the bodies of `node` with the attribute that holds them.

    The attribute of a list of graphs gets the position behind its name: `branches[1]`. A reference
    to an attribute of the enclosing function holds no graph and yields nothing.
    """
    # The plain dict inside: going through the mapping around it takes several times as long, and
    # this is asked of every node of every walk.
    for name, attribute in node.attributes.data.items():
        kind = attribute.type
        if kind is _GRAPH and not attribute.is_ref():
            yield name, attribute.as_graph()
        elif kind is _GRAPHS and not attribute.is_ref():
            for position, graph in enumerate(attribute.as_graphs()):
                yield f"{name}[{position}]", graph


def graphs(model: ir.Model) -> Iterator[tuple[str, ir.Graph]]:
    """Yield every graph of `model` with its path, as `Location` describes it.

    The main graph comes first, then its bodies (of If, Loop, Scan and any other node), each before
    the bodies nested in it, then the graph of each function and its bodies. Attributes of a
    graph's nodes are looked at after the graph itself was yielded, once.
    """
    for path, graph in _roots(model):
        yield from _with_bodies(path, graph)


def contents(model: ir.Model) -> Iterator[tuple[str, ir.Graph, tuple[ir.Node, ...]]]:
    """Yield what `graphs` yields, and the nodes of each graph.

    They are listed once, for this walk and for its caller: the linked list of onnx_ir takes many
    times as long to go through as a tuple. So nodes must not come or go meanwhile.
    """
    for path, graph in _roots(model):
        yield from _with_nodes(path, graph)


def nodes(model: ir.Model) -> Iterator[tuple[str, int, ir.Node]]:
    """Yield every node of `model` with the path of its graph and its index there.

    A node comes before the nodes of its bodies; otherwise the order is that of `graphs`. Removing
    or replacing the node just yielded is allowed; the indices of later nodes do not change by it.
    """
    for path, graph in _roots(model):
        yield from graph_nodes(path, graph)


def is_output_of(value: ir.Value, graph: ir.Graph) -> bool:
    """Return whether `value` is an output of `graph` itself, not of a body or a function."""
    return value.is_graph_output() and value.graph is graph


def producer(value: ir.Value | None) -> ir.Node | None:
    """Return the node that makes a value; None for inputs, initializers and omitted inputs."""
    return None if value is None else value.producer()


def is_op(node: ir.Node, *operators: str) -> bool:
    """Return whether a node is of the default domain, and one of the operators if any are named."""
    return node.domain == "" and (not operators or node.op_type in operators)


def maker(value: ir.Value | None, *operators: str) -> ir.Node | None:
    """Return the node that makes a value; None unless `is_op` is true for it."""
    node = producer(value)
    return node if node is not None and is_op(node, *operators) else None


def read_values(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a node, without omitted ones."""
    return [value for value in node.inputs if value is not None]


def supersede(old: ir.Value, new: ir.Value) -> None:
    """Replace `old` by `new` in every node that reads it and among the outputs of its graph.

    Like `replace_all_uses_with` of onnx_ir, but without a search through all outputs of the graph
    for each value.
    """
    while old.is_graph_output():
        graph = old.graph
        assert graph is not None
        known: dict[ir.Value, list[int]] = graph.meta.get(_PLACES, {})
        places = known.pop(old, [])
        outputs = graph.outputs
        if not places or any(i >= len(outputs) or outputs[i] is not old for i in places):
            graph.meta[_PLACES] = known = {}
            for place, value in enumerate(outputs):
                known.setdefault(value, []).append(place)
            places = known.pop(old)
        for place in places:
            graph.outputs[place] = new
        known.setdefault(new, []).extend(places)
    old.replace_all_uses_with(new)


def remove_node(node: ir.Node) -> None:
    """Remove a node whose outputs nobody reads from its graph and its inputs.

    `Graph.remove` of onnx_ir 1.1 searches all outputs of the graph for each node, so that it takes
    quadratic time for models with many caches.
    """
    graph = node.graph
    assert graph is not None
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    listed = getattr(graph, "_nodes", None)
    if listed is None:
        graph.remove(node)
    else:
        listed.remove(node)
        node.graph = None


_PLACES = "onnx_kvtool.output_places"


def values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield every value that `model` defines, in the order of `graphs`.

    Of each graph these are its inputs, its initializers (one that is an input as well comes twice)
    and the outputs of its nodes.
    """
    for _, graph in graphs(model):
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def tensors(model: ir.Model) -> Iterator[tuple[Location, ir.TensorProtocol]]:
    """Yield every tensor that `model` holds, without touching its values.

    These are the initializers of all graphs, the tensors in attributes of all nodes, and the
    default values of function attributes. The location names the initializer as its value; for
    an attribute, the value is the attribute's name.
    """
    for path, graph, listed in contents(model):
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                yield Location(path, value=name), value.const_value
        for index, node in enumerate(listed):
            if not node.attributes.data:
                continue
            for attribute in node.attributes.data.values():
                kind = attribute.type
                if kind is _TENSOR or kind is _TENSORS:
                    for tensor in _held(attribute):
                        yield Location.of(path, node, index, attribute.name), tensor
    for function in model.functions.values():
        path = function_path(*function.identifier())
        for attribute in function.attributes.values():
            for tensor in _held(attribute):
                yield Location(path, value=attribute.name), tensor


def _roots(model: ir.Model) -> Iterator[tuple[str, ir.Graph]]:
    yield graph_path(model.graph.name), model.graph
    for function in model.functions.values():
        yield function_path(*function.identifier()), function.graph


def _with_bodies(path: str, graph: ir.Graph) -> Iterator[tuple[str, ir.Graph]]:
    yield path, graph
    for index, node in enumerate(graph):
        if not node.attributes.data:
            continue
        for name, body in subgraphs(node):
            yield from _with_bodies(step_path(path, node.name, index, name), body)


def _with_nodes(path: str, graph: ir.Graph) -> Iterator[tuple[str, ir.Graph, tuple[ir.Node, ...]]]:
    listed = tuple(graph)
    yield path, graph, listed
    for index, node in enumerate(listed):
        if node.attributes.data:
            for name, body in subgraphs(node):
                yield from _with_nodes(step_path(path, node.name, index, name), body)


def graph_nodes(path: str, graph: ir.Graph) -> Iterator[tuple[str, int, ir.Node]]:
    """Yield the nodes of one graph and of its bodies, as `nodes` does."""
    for index, node in enumerate(graph):
        bodies = list(subgraphs(node)) if node.attributes.data else ()
        yield path, index, node
        for name, body in bodies:
            yield from graph_nodes(step_path(path, node.name, index, name), body)


def _held(attribute: ir.Attr) -> Iterator[ir.TensorProtocol]:
    # Not `as_tensor()`, which asks the tensor for its size and fails for an undefined type.
    if attribute.is_ref() or attribute.value is None:
        return
    if attribute.type is _TENSOR:
        yield attribute.value
    elif attribute.type is _TENSORS:
        yield from attribute.value


def upwards(
    value: ir.Value, above: Callable[[ir.Node], ir.Value | None]
) -> Iterator[tuple[ir.Value, ir.Node | None]]:
    """Yield a value and the values that it is computed from, each with its producer.

    `above` returns the input of a node that is followed; None to end there.

    Ends where nothing is above, and where values of a malformed graph are made from each other.
    """
    seen: set[int] = set()
    current: ir.Value | None = value
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        node = current.producer()
        yield current, node
        current = None if node is None else above(node)
