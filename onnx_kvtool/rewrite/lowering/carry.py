"""Values of element types that the target lacks altogether, carried by types that it has.

A weight of 4 bits, or of 8-bit floats, reaches the arithmetic through operators that move it
(Transpose, Gather, TensorScatter, ...) and ends in a DequantizeLinear or a Cast. All of them mean
the same on a type that holds every value, so the whole way is given that type before its nodes are
lowered; what stands at the border of the model keeps its type and is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import contents, remove_node
from onnx_kvtool.core.walk import values as all_values
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Emitter, Names, Replacement, ScopedValues
from onnx_kvtool.emit.forms import dtype_of
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.dtypes import CARRIERS, takes
from onnx_kvtool.rewrite.engine.inline import replace_node
from onnx_kvtool.rewrite.lowering.quantize import as_bytes, dequantized, unpacked
from onnx_kvtool.rewrite.report import Lowered

_D = ir.DataType


def carry_types(model: ir.Model, source: int, target: int, names: Names) -> Carried:
    """Give values of types that `target` lacks a type that holds them exactly, in place.

    A value stays unchanged, with all that a node ties to it, if it is an input or output of a graph
    or body, if an operator but those above computes with it, or if it is a float of 8 bits or less
    that a node rounds to. The engine then refuses its nodes.
    """
    lacking = {dtype for dtype in CARRIERS if not takes("Cast", 0, dtype, target)}
    found = Carried(source, target, names)
    if lacking:
        values = {value for value in all_values(model) if value.dtype in lacking}
        if chosen := values - _held_back(values):
            found.run(model, chosen)
    return found


def _held_back(values: set[ir.Value]) -> set[ir.Value]:
    """Return the values that cannot be carried, or are tied to one that cannot be."""
    waiting = [value for value in values if not _may_stand(value)]
    judged: dict[ir.Node, bool] = {}
    for value in values:
        for node in _around(value):
            if node not in judged:
                judged[node] = _takes_carriers(node, values)
                if not judged[node]:
                    waiting += _tied(node, values)
    held: set[ir.Value] = set()
    while waiting:
        value = waiting.pop()
        if value in held:
            continue
        held.add(value)
        for node in _around(value):
            waiting += [other for other in _tied(node, values) if other not in held]
    return held


def _may_stand(value: ir.Value) -> bool:
    if value.is_graph_input() or value.is_graph_output():
        return False
    if value.producer() is not None:
        return True
    tensor = value.const_value
    return (
        tensor is not None and tensor.dtype in CARRIERS and hasattr(tensor, "tobytes")
    )  # not sparse


def _around(value: ir.Value) -> Iterable[ir.Node]:
    producer = value.producer()
    if producer is not None:
        yield producer
    for use in value.uses():
        yield use.node


def _tied(node: ir.Node, values: set[ir.Value]) -> list[ir.Value]:
    return [v for v in (*node.inputs, *node.outputs) if v is not None and v in values]


def _takes_carriers(node: ir.Node, values: set[ir.Value]) -> bool:
    """Return whether a node means the same when the values among its operands are carried."""
    if not is_standard(node):
        return False
    given = [index for index, v in enumerate(node.inputs) if v is not None and v in values]
    made = any(output in values for output in node.outputs)
    match node.op_type:
        case "Constant":
            return "value" in node.attributes and not node.attributes["value"].is_ref()
        case "Cast" | "CastLike":
            return not made and given == [0]
        case "DequantizeLinear" | "Shape" | "Size":
            return not made
        case "QuantizeLinear":
            # Of a float, the rounding itself would have to be written.
            return not made or CARRIERS.get(dtype_of(node.outputs[0])) in (_D.INT8, _D.UINT8)
    reduction = node.attributes.get("reduction")
    return Trait.MOVES in traits(node) and (reduction is None or reduction.value == "none")


@dataclass(slots=True)
class Carried:
    """The edits of one model: values with a new element type, rewritten nodes, and notes."""

    source: int
    target: int
    names: Names
    retyped: set[ir.Value] = field(default_factory=set)
    lowered: list[Lowered] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _scopes: dict[ir.Graph, ScopedValues] = field(default_factory=dict)
    _begun: list[ir.Node] = field(default_factory=list)

    def run(self, model: ir.Model, chosen: set[ir.Value]) -> None:
        """Carry the chosen values, in place."""
        packed: Counter[str] = Counter()
        for path, graph, listed in contents(model):
            for value in tuple(graph.initializers.values()):
                if value in chosen:
                    packed[self._constant(graph, value)] += 1
            for index, node in enumerate(listed):
                if node.op_type == "Constant" and node.outputs[0] in chosen:
                    packed[self._take_out(graph, node)] += 1
                    continue
                place = Location.of(path, node, index)
                for output in node.outputs:
                    if output in chosen:
                        self._retype(node, output)
                if node.op_type in ("DequantizeLinear", "Cast", "CastLike"):
                    self._reader(graph, node, place)
            first = next(iter(graph), None)
            if first is None:
                graph.extend(self._begun)
            else:
                graph.insert_before(first, self._begun)
            self._begun = []
        self.notes += [
            f"{counted(count, f'constant of type {name}', f'constants of type {name}')} "
            f"kept as bytes that the graph takes apart: opset {self.target} has no such type"
            for name, count in packed.items()
            if name
        ]

    def _retype(self, node: ir.Node, value: ir.Value) -> None:
        """Give a result another type; one that was saturated to a narrow type is clipped to it."""
        narrow = value.dtype
        assert narrow is not None
        carrier = CARRIERS[narrow]
        value.type = ir.TensorType(carrier)
        self.retyped.add(value)
        if node.op_type != "QuantizeLinear":
            return
        if "output_dtype" in node.attributes and node.attributes["output_dtype"].value:
            node.attributes["output_dtype"] = ir.AttrInt64("output_dtype", carrier.value)
        graph = node.graph
        assert graph is not None
        em = Emitter(self._scope(graph), self.source, node.name or node.op_type)
        users = tuple(value.uses())
        clipped = em.op("Clip", value, int(narrow.min), int(narrow.max))
        clipped.shape = value.shape
        for use in users:
            use.node.replace_input_with(use.idx, clipped)
        graph.insert_after(node, em.commit())

    def _reader(self, graph: ir.Graph, node: ir.Node, place: Location) -> None:
        """Mend a node that no longer reads the type that its attributes are for."""
        data = node.inputs[0]
        if data is None or data not in self.retyped:
            return
        if node.op_type != "DequantizeLinear":
            for name in ("saturate", "round_mode"):  # for results of types that are not there
                node.attributes.pop(name, None)
            return
        if data.dtype == _D.FLOAT16:
            em = Emitter(self._scope(graph), self.target, node.name or node.op_type)
            result = dequantized(em, NodeView(node, self.source))
            replace_node(node, em, Replacement((result,)))
            self.lowered.append(Lowered(place, "dequantize_linear"))

    def _take_out(self, graph: ir.Graph, node: ir.Node) -> str:
        """Make the value of a Constant an initializer, and carry that."""
        output = node.outputs[0]
        tensor = node.attributes["value"].as_tensor()
        value = ir.Value(
            name=self.names.fresh(output.name or "constant"),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        graph.register_initializer(value)
        output.replace_all_uses_with(value)
        remove_node(node)
        return self._constant(graph, value)

    def _constant(self, graph: ir.Graph, value: ir.Value) -> str:
        """Store a constant in a form that the target has; return its type, "" for a few values."""
        tensor = value.const_value
        assert tensor is not None and value.name is not None
        stored = as_bytes(tensor, value.name)
        users = tuple(value.uses())
        value.const_value = stored
        value.type, value.shape = ir.TensorType(stored.dtype), ir.Shape(stored.shape.numpy())
        em = Emitter(self._scope(graph), self.target, value.name)
        elements = unpacked(em, value, tensor)
        self.retyped |= {value, elements}
        if elements is value:
            em.discard()
            return ""
        elements.shape = ir.Shape(tensor.shape.numpy())
        for use in users:
            use.node.replace_input_with(use.idx, elements)
        self._begun += em.commit()
        return tensor.dtype.name

    def _scope(self, graph: ir.Graph) -> ScopedValues:
        return self._scopes.setdefault(graph, ScopedValues(graph, None, self.names))
