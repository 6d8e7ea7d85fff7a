"""The function body in the schema of an operator, simplified, as a separate graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.shape_inference
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from onnx_kvtool.analysis.constants import ConstantFolder, const_tensor
from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.walk import remove_node, subgraphs, supersede
from onnx_kvtool.emit.emitter import Names, release
from onnx_kvtool.guard.weightless import infer_with_data
from onnx_kvtool.model_io.verbatim import bodies
from onnx_kvtool.ops.schema import NEWEST, is_standard
from onnx_kvtool.ops.traits import FLOAT_TYPES, WHOLE_TYPES
from onnx_kvtool.shapes.annotations import forget_invented_names

# If nodes with a known condition become their branch.


def decide_branches(
    model: ir.Model, folder: ConstantFolder, names: Names | None = None
) -> list[ir.Node]:
    """Replace each If with a constant condition by its taken branch, in place; return these.

    Main graph and bodies; not functions, and not bodies of operators that ONNX does not define.
    `names` are made when they are needed if there are none.
    """
    return _decided(model.graph, folder, names or Names(model))


def _decided(graph: ir.Graph, folder: ConstantFolder, names: Names) -> list[ir.Node]:
    decided = []
    waiting = list(reversed(tuple(graph)))
    while waiting:
        node = waiting.pop()
        if not node.attributes.data or not is_standard(node):
            continue
        bodies = dict(subgraphs(node))
        if (taken := _taken(node, bodies, folder)) is not None:
            decided.append(node)
            waiting += reversed(_inline(graph, node, taken, names))
            continue
        for body in bodies.values():
            decided += _decided(body, folder, names)
    return decided


def _taken(
    node: ir.Node, bodies: Mapping[str, ir.Graph], folder: ConstantFolder
) -> ir.Graph | None:
    """Return the branch of an If that runs; None where that is open, and for other nodes."""
    condition = folder.integers(node.inputs[0]) if node.op_type == "If" else None
    if condition is None or condition.size != 1:
        return None
    return bodies.get("then_branch" if condition.ravel()[0] else "else_branch")


def _inline(graph: ir.Graph, node: ir.Node, branch: ir.Graph, names: Names) -> list[ir.Node]:
    """Replace an If by the nodes of a branch, and return these.

    A value that has a name already becomes an output of the graph through an Identity.
    """
    results, nodes = list(branch.outputs), list(branch)
    initializers = list(branch.initializers.values())
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    for value in initializers:
        value.name = names.fresh(value.name or "constant")
        graph.register_initializer(value)
    # The two branches may use the same names.
    for inner in nodes:
        for output in inner.outputs:
            if output.name:
                output.name = names.fresh(output.name)
    graph.insert_before(node, nodes)
    for output, result in zip(node.outputs, results, strict=True):
        if not output.is_graph_output():
            output.replace_all_uses_with(result)
            continue
        made, producer = result, result.producer()
        if producer is None or producer.graph is not graph or result.is_graph_output():
            identity = ir.Node("", "Identity", [result], version=node.version)
            graph.insert_before(node, [identity])
            (made,) = identity.outputs
        supersede(output, made)
        made.name, made.type = output.name, output.type or made.type
        made.shape = made.shape if output.shape is None else output.shape
    remove_node(node)
    release(node)  # the other branch must not count as a reader
    return nodes


# Simplifying a function body after its types and attributes are known.


def simplify(model: ir.Model) -> None:
    """Fold integer constants, drop Casts that change nothing and nodes that nobody reads.

    In place, main graph only: bodies of If and Loop stay, but an If with a constant condition
    becomes its branch. Constant nodes become initializers. No result changes in any bit.
    """
    graph, folder = model.graph, ConstantFolder()
    decide_branches(model, folder)
    for node in graph:
        if node.domain != "" or len(node.outputs) != 1:
            continue
        output = node.outputs[0]
        if output.is_graph_output():
            continue
        if _changes_nothing(node) and node.inputs[0] is not None:
            output.replace_all_uses_with(node.inputs[0])
        elif (tensor := _constant(node, folder)) is not None:
            constant = ir.Value(
                name=f"{output.name}",
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(tensor.numpy().shape),
                const_value=tensor,
            )
            output.name = f"{output.name}_folded"
            graph.register_initializer(constant)
            output.replace_all_uses_with(constant)
    common_passes.RemoveUnusedNodesPass()(model)


def _changes_nothing(node: ir.Node) -> bool:
    """Return whether the output of a node is its input.

    onnx_ir's own pass is not used: it also takes the Identity out of a branch that returns an
    outer value, which leaves the branch without a producer for its output (onnx-ir 1.1.0).
    """
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return False
    if node.op_type == "Identity":
        return True
    return node.op_type == "Cast" and data.dtype is not None and data.dtype == node.outputs[0].dtype


def _constant(node: ir.Node, folder: ConstantFolder) -> ir.TensorProtocol | None:
    output = node.outputs[0]
    if node.op_type == "Constant":
        return const_tensor(output)
    if node.op_type == "Cast" and output.dtype in FLOAT_TYPES:
        return _cast(node.inputs[0], output.dtype)
    if output.dtype not in WHOLE_TYPES:
        return None
    numbers = folder.integers(output)
    return None if numbers is None else ir.tensor(numbers.astype(output.dtype.numpy()))


def _cast(data: ir.Value | None, to: ir.DataType) -> ir.TensorProtocol | None:
    """Return a constant floating-point number in another type that holds it exactly."""
    tensor = None if data is None else data.const_value
    if tensor is None or tensor.dtype not in FLOAT_TYPES or tensor.size != 1:
        return None
    given = tensor.numpy()
    with np.errstate(over="ignore"):
        found = given.astype(to.numpy())
    same = np.array_equal(found.astype(given.dtype), given)
    return ir.Tensor(found, dtype=to) if same else None


# The function body in the schema of an operator, as a separate graph.


@dataclass(frozen=True, slots=True)
class Body:
    """A function body, bound to the attributes and types of one call.

    Attributes:
        model: Main graph: the body. Its inputs are those formal inputs that are given and not
            constant; its outputs are those outputs of the call that have a name.
        inputs: For each input of the body, the index of the call's input.
        outputs: For each output of the body, the index of the call's output.
        opset: Version of the default domain that the body is written for.
    """

    model: ir.Model
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    opset: int


def body_key(node: ir.Node, opset: int, folder: ConstantFolder) -> bytes:
    """Return the key of a call's body: operator, attributes, types, small constants."""
    call = _call(node, opset, folder)
    return b"\0".join(
        [
            str(opset).encode(),
            call.node.SerializeToString(deterministic=True),
            *(t.SerializeToString(deterministic=True) for t in call.types),
            *(t.SerializeToString(deterministic=True) for t in call.constants.values()),
        ]
    )


def schema_body(node: ir.Node, opset: int, folder: ConstantFolder) -> Body | None:
    """Return the body of a node of the default domain; None without one for its input types.

    The body is the one with the largest version not above `opset`; its nodes are of that version.
    It is bound in Python, because onnx's inliner leaves default attributes unbound, refuses absent
    optional inputs, and serialises the whole model for each call. Small integer constants are
    folded into it.
    """
    call = _call(node, opset, folder)
    function = _function(call, node.op_type, opset)
    if function is None:
        return None
    version = next((o.version for o in function.opset_import if o.domain in DEFAULT_DOMAINS), opset)
    graph = onnx.GraphProto(name=node.op_type)
    present = [i for i, name in enumerate(call.node.input) if name]
    formal = {function.input[i]: i for i in present if i < len(function.input)}
    for name, index in formal.items():
        if name in call.constants:
            graph.initializer.append(call.constants[name])
        else:
            graph.input.append(onnx.ValueInfoProto(name=name, type=call.types[index]))
    absent = set(function.input) - set(formal)
    attributes = {a.name: a for a in call.node.attribute}
    for default in function.attribute_proto:
        attributes.setdefault(default.name, default)
    for inner in function.node:
        bound = graph.node.add()
        bound.CopyFrom(inner)
        _bind(bound, attributes, absent)
    if node.op_type == "AffineGrid":  # drop the second axis, never a batch of size 1
        inner = (n for outer in graph.node for body in bodies(outer) for n in body.node)
        for squeeze in (n for n in inner if n.op_type == "Squeeze" and len(n.input) == 1):
            squeeze.input.append("one_1d")
    for name in _INT64_ALONE.get(node.op_type, ()):
        if call.types[formal[name]].tensor_type.elem_type == onnx.TensorProto.INT32:
            wide = f"{name}_int64"
            for reader in graph.node:
                reader.input[:] = [wide if read == name else read for read in reader.input]
            to = onnx.TensorProto.INT64
            graph.node.insert(0, onnx.helper.make_node("Cast", [name], [wide], to=to))
    wanted = tuple(i for i, output in enumerate(node.outputs) if output.name)
    produced = {name for inner in graph.node for name in inner.output}
    for index, name in enumerate(function.output[i] for i in wanted):
        passed = name if name in produced else f"{name}_output_{index}"
        if passed != name:  # an input of the body
            graph.node.append(onnx.helper.make_node("Identity", [name], [passed]))
        graph.output.append(onnx.ValueInfoProto(name=passed))
    result = _typed(onnx.helper.make_model(graph, opset_imports=function.opset_import))
    if names := _grown(result, [node.outputs[index] for index in wanted]):
        for name in names:
            _to_scalar(graph, name)
        result = _typed(onnx.helper.make_model(graph, opset_imports=function.opset_import))
    inputs = tuple(formal[v.name] for v in result.graph.inputs if v.name is not None)
    return Body(result, inputs, wanted, version)


def _grown(body: ir.Model, outputs: Sequence[ir.Value]) -> list[str]:
    """Return the outputs of a body that are no scalars although those of the call are.

    The bodies of older operators (Celu-12) write their constants as vectors of one element.
    """
    return [
        made.name or ""
        for made, output in zip(body.graph.outputs, outputs, strict=True)
        if made.shape and output.shape is not None and not output.shape
    ]


_INT64_ALONE = {"CenterCropPad": ("shape",)}
"""Inputs that may be int32, and that the body joins with sizes, which are int64."""


def _to_scalar(graph: onnx.GraphProto, name: str) -> None:
    """Let `name` be the scalar of what `graph` made under that name."""
    grown, shape = f"{name}_grown", f"{name}_scalar_shape"
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [grown if known == name else known for known in names]
    graph.initializer.add(name=shape, data_type=onnx.TensorProto.INT64, dims=[0])
    graph.node.add(op_type="Reshape", input=[grown, shape], output=[name])


def _typed(model: onnx.ModelProto) -> ir.Model:
    """Infer and simplify alternately: folded sizes let inference find more."""
    for _ in range(2):
        inferred = infer_with_data(model)
        result = ir.from_proto(inferred)
        forget_invented_names(result.graph)
        simplify(result)
        model = ir.to_proto(result)
    return result


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with every name replaced by the schema's, so that equal calls look equal."""

    node: onnx.NodeProto = field(default_factory=onnx.NodeProto)
    types: list[onnx.TypeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)


def _call(node: ir.Node, opset: int, folder: ConstantFolder) -> _Call:
    schema = onnx.defs.get_schema(node.op_type, min(opset, NEWEST), "")
    call = _Call()
    call.node.op_type = node.op_type
    for index, value in enumerate(node.inputs):
        name = schema.inputs[index].name if index < len(schema.inputs) else f"in_{index}"
        call.node.input.append("" if value is None else name)
        if value is None:
            call.types.append(onnx.TypeProto())
            continue
        call.types.append(ir.serde.serialize_value(value).type)
        numbers = folder.integers(value)
        if numbers is not None and value.dtype is not None:
            array = numbers.astype(value.dtype.numpy())
            call.constants[name] = onnx.numpy_helper.from_array(array, name)
    for index, output in enumerate(node.outputs):
        call.node.output.append(f"out_{index}" if output.name else "")
    for name in sorted(node.attributes):
        call.node.attribute.append(ir.to_proto(node.attributes[name]))
    for name, attribute in sorted(schema.attributes.items()):
        if name not in node.attributes and attribute.default_value.name:
            call.node.attribute.append(attribute.default_value)
    return call


def _function(call: _Call, op_type: str, opset: int) -> onnx.FunctionProto | None:
    schema: Any = onnx.defs.get_schema(op_type, min(opset, NEWEST), "")
    raw = b""
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if versions:
        raw = schema.get_function_with_opset_version(max(versions))
    elif versions := [v for v in schema.context_dependent_function_opset_versions if v <= opset]:
        types = [t.SerializeToString() for t in call.types]
        raw = schema.get_context_dependent_function_with_opset_version(
            max(versions), call.node.SerializeToString(), types
        )
    return onnx.FunctionProto.FromString(raw) if raw else None


def _bind(
    node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto], absent: set[str]
) -> None:
    """Replace attribute references and absent inputs, in nested graphs too."""
    for index, name in enumerate(node.input):
        if name in absent:
            node.input[index] = ""
    while node.input and not node.input[-1]:
        del node.input[-1]
    for body in bodies(node):
        for inner in body.node:
            _bind(inner, attributes, absent)
    given = list(node.attribute)
    del node.attribute[:]
    for attribute in given:
        if not attribute.ref_attr_name:
            node.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            bound = node.attribute.add()
            bound.CopyFrom(attributes[attribute.ref_attr_name])
            bound.name = attribute.name
