"""The function body that the schema of an operator gives, as a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import onnx
import onnx.defs
import onnx.helper
import onnx.shape_inference
import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.inference import infer_with_data
from onnx_kvtool.model_io.forms import bodies
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.engine.simplify import simplify
from onnx_kvtool.shapes.infer import forget_invented_names

__all__ = ["Body", "body_key", "has_body", "schema_body"]


class Body:
    """A function body, bound to the attributes and types of one call.

    Attributes:
        model: Main graph: the body. Its inputs are those formal inputs that are given and not
            constant; its outputs are those outputs of the call that have a name.
        inputs: For each input of the body, the index of the call's input.
        outputs: For each output of the body, the index of the call's output.
        opset: Version of the default domain that the body is written for.
    """

    def __init__(
        self, model: ir.Model, inputs: tuple[int, ...], outputs: tuple[int, ...], opset: int
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.outputs = outputs
        self.opset = opset


def has_body(op_type: str) -> bool:
    """Return whether the newest version of an operator of the default domain has a body."""
    schema = cast(_BodySchema, onnx.defs.get_schema(op_type, NEWEST, ""))
    return schema.has_function or schema.has_context_dependent_function


def body_key(node: ir.Node, opset: int, folder: Folder) -> bytes:
    """Return what the body of a call depends on: operator, attributes, types, small constants."""
    call = _call(node, opset, folder)
    return b"\0".join(
        [
            str(opset).encode(),
            call.node.SerializeToString(deterministic=True),
            *(t.SerializeToString(deterministic=True) for t in call.types),
            *(t.SerializeToString(deterministic=True) for t in call.constants.values()),
        ]
    )


def schema_body(node: ir.Node, opset: int, folder: Folder) -> Body | None:
    """Return the body of a node of the default domain.

    The body is the one with the largest version not above `opset`; its nodes are of that version.
    It is bound in Python, because onnx's inliner leaves default attributes unbound, refuses absent
    optional inputs, and serialises the whole model for each call.

    Args:
        node: The call; it is not changed.
        opset: The opset the call was written for.
        folder: Knows which inputs are small integer constants; these are folded into the body.

    Returns:
        None when the operator has no body, or none for what is known of the input types.
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
    if node.op_type == "AffineGrid":
        _squeeze_one(graph)
    for name in _INT64_ALONE.get(node.op_type, ()):
        if call.types[formal[name]].tensor_type.elem_type == onnx.TensorProto.INT32:
            _widen(graph, name)
    wanted = tuple(i for i, output in enumerate(node.outputs) if output.name)
    _add_outputs(graph, [function.output[i] for i in wanted])
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


def _widen(graph: onnx.GraphProto, name: str) -> None:
    """Let the nodes of `graph` read `name` as int64."""
    wide = f"{name}_int64"
    for node in graph.node:
        node.input[:] = [wide if read == name else read for read in node.input]
    cast = onnx.helper.make_node("Cast", [name], [wide], to=onnx.TensorProto.INT64)
    graph.node.insert(0, cast)


def _squeeze_one(graph: onnx.GraphProto) -> None:
    """Let the body of AffineGrid drop the second axis, not the batch where there is one grid."""
    for node in graph.node:
        inner = [n for body in bodies(node) for n in body.node]
        for squeeze in (n for n in inner if n.op_type == "Squeeze" and len(n.input) == 1):
            squeeze.input.append("one_1d")


def _to_scalar(graph: onnx.GraphProto, name: str) -> None:
    """Let `name` be the scalar of what `graph` made under that name."""
    grown, shape = f"{name}_grown", f"{name}_scalar_shape"
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [grown if known == name else known for known in names]
    graph.initializer.add(name=shape, data_type=onnx.TensorProto.INT64, dims=[0])
    graph.node.add(op_type="Reshape", input=[grown, shape], output=[name])


def _typed(model: onnx.ModelProto) -> ir.Model:
    """Infer and simplify in turns: sizes that fold to constants let inference see further."""
    for _ in range(2):
        inferred = infer_with_data(model)
        result = ir.from_proto(inferred)
        forget_invented_names(result.graph)
        simplify(result)
        model = ir.to_proto(result)
    return result


class _BodySchema(Protocol):
    """The part of `onnx.defs.OpSchema` that onnx's type stubs leave out."""

    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: list[int]
    context_dependent_function_opset_versions: list[int]

    def get_function_with_opset_version(self, version: int) -> bytes: ...

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, input_types: list[bytes]
    ) -> bytes: ...


class _Call:
    """A call with every name replaced by the schema's, so that equal calls look equal."""

    def __init__(self) -> None:
        self.node = onnx.NodeProto()
        self.types: list[onnx.TypeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}


def _call(node: ir.Node, opset: int, folder: Folder) -> _Call:
    schema = onnx.defs.get_schema(node.op_type, min(opset, NEWEST), "")
    call = _Call()
    call.node.op_type = node.op_type
    for index, value in enumerate(node.inputs):
        last = schema.inputs[-1] if schema.inputs else None
        formal = schema.inputs[index] if index < len(schema.inputs) else last
        name = formal.name if formal is not None and index < len(schema.inputs) else f"in_{index}"
        call.node.input.append("" if value is None else name)
        call.types.append(_type(value))
        if value is None:
            continue
        numbers = folder.integers(value)
        if numbers is not None and value.dtype is not None:
            array = numbers.astype(value.dtype.numpy())
            call.constants[name] = onnx.numpy_helper.from_array(array, name)
    for index, output in enumerate(node.outputs):
        call.node.output.append(f"out_{index}" if output.name else "")
    given = sorted(node.attributes)
    for name in given:
        call.node.attribute.append(ir.to_proto(node.attributes[name]))
    for name, attribute in sorted(schema.attributes.items()):
        if name not in node.attributes and attribute.default_value.name:
            call.node.attribute.append(attribute.default_value)
    return call


def _type(value: ir.Value | None) -> onnx.TypeProto:
    if value is None or value.type is None:
        return onnx.TypeProto()
    return ir.serde.serialize_value(value).type


def _function(call: _Call, op_type: str, opset: int) -> onnx.FunctionProto | None:
    schema = cast(_BodySchema, onnx.defs.get_schema(op_type, min(opset, NEWEST), ""))
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if versions:
            raw = schema.get_function_with_opset_version(max(versions))
            return _parsed(raw)
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            raw = schema.get_context_dependent_function_with_opset_version(
                max(versions),
                call.node.SerializeToString(),
                [t.SerializeToString() for t in call.types],
            )
            return _parsed(raw) if raw else None
    return None


def _parsed(raw: bytes) -> onnx.FunctionProto:
    function = onnx.FunctionProto()
    function.ParseFromString(raw)
    return function


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
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            actual = attributes.get(attribute.ref_attr_name)
            if actual is None:
                continue
            bound = onnx.AttributeProto()
            bound.CopyFrom(actual)
            bound.name = attribute.name
            kept.append(bound)
        else:
            kept.append(attribute)
    del node.attribute[:]
    node.attribute.extend(kept)


def _add_outputs(graph: onnx.GraphProto, names: list[str]) -> None:
    """Declare the outputs; one that is an input of the body passes through an Identity."""
    produced = {name for node in graph.node for name in node.output}
    for index, name in enumerate(names):
        if name in produced:
            graph.output.append(onnx.ValueInfoProto(name=name))
            continue
        passed = f"{name}_output_{index}"
        graph.node.append(onnx.helper.make_node("Identity", [name], [passed]))
        graph.output.append(onnx.ValueInfoProto(name=passed))
