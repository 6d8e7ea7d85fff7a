"""Inline the model-local functions that the target does not support."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder, const_tensor
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import graph_path, nodes, remove_node, step_path, subgraphs, supersede
from onnx_kvtool.emit.emitter import Emitter, Names, Refusal, Replacement, ScopedValues
from onnx_kvtool.guard.exhaustion import MOST_RUN, expanded_nodes
from onnx_kvtool.ops.legality import Fit
from onnx_kvtool.ops.schema import is_standard, op_facts, same_version, tensor_type
from onnx_kvtool.shapes.calls import bind_parameters

# Inlining a function body at its call.


def instantiate(
    body: ir.Graph,
    inputs: Sequence[ir.Value | None],
    em: Emitter,
    *,
    attributes: Mapping[str, ir.Attr] | None = None,
    version: int | None = None,
) -> tuple[ir.Value, ...]:
    """Add a copy of `body` to the emitter's nodes, and return one value per output of it.

    Small initializers of the body become shared constants of the root graph. Every name is new.

    An absent input is None, or left out at the end. A reference to a parameter that is not among
    `attributes` removes the attribute that refers, as ONNX defines it. The nodes are tagged with
    opset `version`; None keeps their own tag.
    """
    copy = body.clone(allow_outer_scope_values=True)
    for index, formal in enumerate(copy.inputs):
        _replace(formal, inputs[index] if index < len(inputs) else None)
    for name, initializer in copy.initializers.items():
        tensor = initializer.const_value
        if tensor is not None:
            _replace(initializer, em.tensor(tensor, name))
    outputs = list(copy.outputs)
    given = {formal: inputs[i] for i, formal in enumerate(copy.inputs) if i < len(inputs)}
    copy.outputs.clear()
    nodes = list(copy)
    copy.remove(nodes)
    for node in nodes:
        _prepare(node, em, attributes or {}, version)
        em.adopt(node, node.name or node.op_type)
    return tuple(_distinct(em, outputs, given))


def _replace(formal: ir.Value, actual: ir.Value | None) -> None:
    for use in tuple(formal.uses()):
        use.node.replace_input_with(use.idx, actual)


def _prepare(
    node: ir.Node, em: Emitter, attributes: Mapping[str, ir.Attr], version: int | None
) -> None:
    """Bind the attribute parameters of a node and of the nodes in its bodies, and tag them."""
    if version is not None and node.domain == "":
        node.version = version
    bind_parameters(node, attributes)
    for _, graph in subgraphs(node):
        for value in graph.inputs:
            value.name = em.scope.names.fresh(value.name or "value")
        for inner in graph:
            _prepare(inner, em, attributes, version)
            inner.name = em.scope.names.fresh(inner.name or inner.op_type)
            for output in inner.outputs:
                if output.name:
                    output.name = em.scope.names.fresh(output.name)


def _distinct(
    em: Emitter, outputs: list[ir.Value], given: Mapping[ir.Value, ir.Value | None]
) -> list[ir.Value]:
    """Return the outputs, with an Identity for each that is an input or appears twice."""
    result: list[ir.Value] = []
    for output in outputs:
        if output in given or output.producer() is None or output in result:
            actual = given.get(output, output)
            copied = em.op("Identity", actual, hint="Identity")
            copied.type = actual.type if actual is not None else None
            result.append(copied)
        else:
            result.append(output)
    return result


# The edits of one node: another form, or other nodes under its name.


def relabel(node: ir.Node, fitted: Fit, target: int, folder: ConstantFolder) -> None:
    """Give a node that fits `target`, and that `can_relabel`, the form of `target`, in place."""
    constants = _constants(node, fitted, folder) or {}
    for name in fitted.drop:
        del node.attributes[name]
    for name, value in fitted.add.items():
        node.attributes[name] = ir.convenience.convert_attribute(name, value)
    for index, name in fitted.as_attribute:
        freed = node.inputs[index]
        node.replace_input_with(index, None)
        if freed is not None:
            remove_unused(freed)
        if constants[name]:  # for a reduction, no axes mean all axes, as an absent attribute does
            node.attributes[name] = ir.AttrInt64s(name, constants[name])
    last = len(node.inputs)
    while last and node.inputs[last - 1] is None:
        last -= 1
    if last < len(node.inputs):
        node.resize_inputs(last)
    node.version = target


def can_relabel(node: ir.Node, fitted: Fit, folder: ConstantFolder) -> bool:
    """Return whether each input that must become an attribute is constant, and says the same so."""
    return _constants(node, fitted, folder) is not None


def _constants(
    node: ir.Node, fitted: Fit, folder: ConstantFolder
) -> dict[str, tuple[int, ...]] | None:
    """Return the inputs that become attributes; None if one cannot."""
    constants: dict[str, tuple[int, ...]] = {}
    for index, name in fitted.as_attribute:
        numbers = folder.integers(node.inputs[index])
        if numbers is None:
            return None
        constants[name] = tuple(int(n) for n in numbers.ravel())
        if not constants[name] and not node.op_type.startswith("Reduce"):
            return None  # an empty attribute reads like an absent one, with another meaning
    return constants


def remove_unused(constant: ir.Value) -> None:
    """Remove a constant that is neither read nor an output."""
    if constant.uses() or constant.is_graph_output() or constant.graph is None:
        return
    producer = constant.producer()
    if producer is not None:
        if producer.op_type == "Constant":
            constant.graph.remove(producer)
    elif not constant.is_graph_input() and constant.name is not None:
        del constant.graph.initializers[constant.name]


def replace_node(node: ir.Node, em: Emitter, replacement: Replacement) -> list[ir.Node]:
    """Replace `node` by the emitted nodes, in place, and return the new nodes.

    Each output takes the name of the one it replaces, so that graph outputs keep theirs, and the
    new nodes take the node's metadata.
    """
    graph = node.graph
    assert graph is not None
    old, new = [], []
    produced = {value for emitted in em.nodes for value in emitted.outputs}
    for output, value in zip(node.outputs, replacement.outputs, strict=True):
        if value is None:
            continue
        old.append(output)
        if value in produced and value not in new:
            new.append(value)
            continue
        # An output takes the name of the one it replaces; a value that has another name already
        # keeps it behind an Identity.
        copied = em.op("Identity", value)
        copied.type = output.type
        new.append(copied)
    nodes = em.commit()
    for emitted in nodes:
        emitted.metadata_props.update(node.metadata_props)
    put_in_place(node, nodes, old, new)
    return nodes


def put_in_place(
    node: ir.Node, nodes: Sequence[ir.Node], old: Sequence[ir.Value], new: Sequence[ir.Value]
) -> None:
    """Replace a node of a graph by `nodes`, and each value of `old` by that of `new`.

    A new value gets name, type, shape and constant value of the one that it replaces, as far as
    that has them.
    """
    graph = node.graph
    assert graph is not None
    for before, value in zip(old, new, strict=True):
        value.type = before.type or value.type
        value.shape = value.shape if before.shape is None else before.shape
        value.const_value = value.const_value if before.const_value is None else before.const_value
        value.name = value.name if before.name is None else before.name
    for before, value in zip(old, new, strict=True):
        supersede(before, value)
    graph.insert_after(node, nodes)
    remove_node(node)


def copy_metadata(node: ir.Node, emitted: Sequence[ir.Node]) -> None:
    """Copy the name and metadata of a replaced node to its replacements, in place.

    The node that computes the first output takes the name, the documentation and the device
    configurations; each output takes documentation and metadata of the one it replaces. A value
    whose element type is unknown declares no type: a file has no form for one without.
    """
    for value in _values(emitted):
        if value.dtype == ir.DataType.UNDEFINED:
            value.type = None
    made: dict[str | None, tuple[ir.Node, ir.Value]] = {
        output.name: (new, output) for new in emitted for output in new.outputs if output.name
    }
    pairs = [(old, *made[old.name]) for old in node.outputs if old.name in made]
    for old, _, output in pairs:
        output.doc_string = old.doc_string
        output.metadata_props.update(old.metadata_props)
    for _, producer, _ in pairs[:1]:
        producer.name = node.name or producer.name
        producer.doc_string = node.doc_string
        producer.device_configurations = node.device_configurations


def _values(emitted: Sequence[ir.Node]) -> Iterator[ir.Value]:
    for node in emitted:
        yield from node.outputs
        for _, body in subgraphs(node):
            yield from _values(tuple(body))


FunctionId = tuple[str, str, str]

_SOME, _MOST_GROWTH = 20_000, 1_000
"""Nodes that are inlined however few are stored, and times those stored that are inlined at most.

Only functions that call each other several times each, and serve nothing else, grow more.
"""


def inline_functions(
    model: ir.Model, wanted: Callable[[ir.Function], bool], names: Names
) -> tuple[list[Location], list[FunctionId]]:
    """Replace every call of a wanted function by its body, in place, in all graphs.

    A function that calls a wanted one is inlined too, because types are known at calls only. The
    nodes of a body keep the opset of their function as a tag. Functions that were inlined are
    removed; others stay, also those that nobody calls.

    Args:
        model: The model; its functions do not call themselves, directly or not.
        wanted: Which functions to inline.
        names: Fresh names of the model.

    Returns:
        The place of every call that was replaced (calls inside functions count with the call that
        brought them), and the identifiers (domain, name, overload) of the functions that nobody
        calls and that were removed all the same.

    Raises:
        Refusal: If a function is built on another version of a custom domain than the model, or
            has a graph as attribute parameter; or if the result would be too large.
    """
    chosen = _with_callers(model, {key for key, f in model.functions.items() if wanted(f)})
    if not chosen:
        return [], []
    stored = sum(map(len, (model.graph, *model.functions.values())))
    most = min(MOST_RUN, max(_SOME, _MOST_GROWTH * stored))
    if (size := expanded_nodes(model)) > most:
        raise Refusal(
            "too-many-calls",
            f"the functions of the model expand to {size} nodes, at most {most} are inlined",
            help="export the model without functions",
        )
    for key in chosen:
        _check_imports(model, model.functions[key])
    called = {node.op_identifier() for _, _, node in nodes(model)}
    inlining = _Inlining(model, chosen, [])
    inlining.graph(
        model.graph, graph_path(model.graph.name), ScopedValues(model.graph, None, names)
    )
    for key in chosen:
        del model.functions[key]
    return inlining.places, sorted(chosen - called)


def _with_callers(model: ir.Model, chosen: set[FunctionId]) -> set[FunctionId]:
    callers: dict[FunctionId, set[FunctionId]] = {}
    for key, function in model.functions.items():
        for node in function.all_nodes():
            if node.op_identifier() in model.functions:
                callers.setdefault(node.op_identifier(), set()).add(key)
    pending = list(chosen)
    while pending:
        for caller in callers.get(pending.pop(), ()):
            if caller not in chosen:
                chosen.add(caller)
                pending.append(caller)
    return chosen


def _check_imports(model: ir.Model, function: ir.Function) -> None:
    for domain, version in function.opset_imports.items():
        if domain == "":
            continue
        if model.opset_imports.setdefault(domain, version) != version:
            raise Refusal(
                "domain-version",
                f"function `{function.domain}::{function.name}` uses domain `{domain}` at version "
                f"{version}, the model at {model.opset_imports[domain]}",
                help="give both the same version",
            )


@dataclass(frozen=True, slots=True)
class _Inlining:
    """One run of `inline_functions`: the functions to inline, and the calls that were replaced."""

    model: ir.Model
    chosen: set[FunctionId]
    places: list[Location]

    def graph(self, graph: ir.Graph, path: str, scope: ScopedValues) -> None:
        for index, node in enumerate(tuple(graph)):
            if node.op_identifier() in self.chosen:
                self.places.append(Location.of(path, node, index))
            waiting = [node]  # a list, because calls may be nested more deeply than Python's own
            while waiting:
                current = waiting.pop()
                if current.op_identifier() in self.chosen:
                    waiting += reversed(self._replace(current, scope))
                    continue
                for name, inner in subgraphs(current):
                    inner_path = step_path(path, current.name, index, name)
                    self.graph(inner, inner_path, ScopedValues(inner, scope, scope.names))

    def _replace(self, node: ir.Node, scope: ScopedValues) -> list[ir.Node]:
        function = self.model.functions[node.op_identifier()]
        em = Emitter(scope, function.opset_imports.get("", 1), node.name or node.op_type)
        outputs = _body(node, function, em)
        old = list(node.outputs)
        new_nodes = em.commit()
        put_in_place(node, new_nodes, old, outputs[: len(old)])
        return new_nodes


def _body(node: ir.Node, function: ir.Function, em: Emitter) -> tuple[ir.Value, ...]:
    attributes = {name: a for name, a in function.attributes.items() if a.value is not None}
    attributes.update(node.attributes)
    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(a.type in graphs for a in attributes.values()):
        raise Refusal(
            "graph-parameter",
            f"function `{function.domain}::{function.name}` takes a graph as attribute",
            help="inline the function in the exporter",
        )
    version = function.opset_imports.get("")
    return instantiate(function.graph, node.inputs, em, attributes=attributes, version=version)


def without_initializers(graph: ir.Graph, opset: int) -> None:
    """Turn each initializer into a Constant at the start of the graph, in place."""
    constants = []
    for name, value in tuple(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            continue
        node = ir.Node(
            "", "Constant", [], [ir.AttrTensor("value", tensor)], version=opset, name=name
        )
        output = node.outputs[0]
        output.type, output.shape = value.type, value.shape
        del graph.initializers[name]
        value.replace_all_uses_with(output)
        output.name = name
        constants.append(node)
    first = next(iter(graph), None)
    if constants and first is not None:
        graph.insert_before(first, constants)


def cannot_stay(function: ir.Function, target: int, ir_version: int) -> bool:
    """Return whether an unchanged function is illegal in a model of these versions."""
    # IR 8 brought functions, IR 9 default values of their attributes, IR 10 overloads.
    if ir_version < 8 or (ir_version < 10 and function.overload):
        return True
    if ir_version < 9 and any(a.value is not None for a in function.attributes.values()):
        return True
    source = function.opset_imports.get("", target)
    for node in function.all_nodes():
        if not is_standard(node):
            continue
        same = same_version(node.op_type, source, target)
        if not same and not _legal_constant(node, target):
            return True
    return False


def _legal_constant(node: ir.Node, opset: int) -> bool:
    """Return whether a node is a Constant that is legal at `opset`: its type is known."""
    facts = op_facts(node.op_type, opset)
    if (
        facts is None
        or node.op_type != "Constant"
        or any(a.is_ref() for a in node.attributes.values())
    ):
        return False
    tensor = const_tensor(node.outputs[0])
    if tensor is None or not set(node.attributes) <= set(facts.attributes):
        return False
    return tensor_type(tensor.dtype) in facts.outputs[0].types
