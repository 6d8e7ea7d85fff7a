"""The types, shapes and errors that onnx's own inference finds, node by node."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir
from onnx import numpy_helper

from onnx_kvtool.core.storage import small_tensor, stored_tensor
from onnx_kvtool.core.walk import function_path, read_values, subgraphs
from onnx_kvtool.guard.crashes import is_fatal
from onnx_kvtool.guard.weightless import infer_with_data, weightless
from onnx_kvtool.guard.wrong_sizes import takes_names_for_zero
from onnx_kvtool.model_io.verbatim import Holder, bodies, named_bodies
from onnx_kvtool.ops.schema import DOMAINS, NEWEST, newest_of, op_facts
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.shapes.annotations import (
    TOO_LARGE,
    by_onnx,
    importing_all,
    innermost,
    is_too_large,
    read_type,
)
from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, constants

# onnx's strict inference puts all errors into one text, and names nodes only by their names, which
# may be missing or not unique. So kvtool renames the nodes of the message, by graph and output.


CONSEQUENCE = "expected to have type but instead is null"
"""Part of an error that follows from an error in an earlier node."""

DECLARED = "existing shape"
"""Part of an error about a declared shape, which need not matter; runtimes refuse wrong types."""

_Nodes = Mapping[str, tuple[onnx.NodeProto, Holder]]
_STEP = re.compile(r"\(op_type:[^,()]*, node name: ([^\n]*?)\): ")
_KIND = re.compile(r"^(\[\w+\]\s*)+")
_NESTED = "Inference error(s):"
_ROUNDS = 16
"""Most rounds of inference; each round but the last finds a new error."""


def complaints(
    model: ir.Model,
    message: onnx.ModelProto,
    unknown: Collection[ir.Node],
    *,
    check_types: bool = False,
) -> Iterator[tuple[ir.Node, str]]:
    """Yield each node that onnx's strict inference refuses, with the error.

    A node in a function that is called twice may come twice, with different errors. An error that
    may only follow from an unknown type does not count. Nothing comes if inference cannot start.

    Args:
        model: The model.
        message: The message of the model; its nodes are renamed, and some are replaced.
        unknown: The nodes of `unknown_nodes`.
        check_types: Whether onnx checks types against the schemas, too.
    """
    known = dict(_named(model.graph, ""))
    nodes = dict(_renamed(message.graph, ""))
    for function in model.functions.values():
        known.update(_named(function.graph, _function_key(function)))
    for proto in message.functions:
        nodes.update(_renamed(proto, _function_key(proto)))
    # The inference drops all errors after an unknown node, and leaves a body at its first bad node.
    # Without such nodes, it gets further.
    silenced = [key for key, node in known.items() if node in unknown]
    seen: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        for key in silenced:
            if key in nodes:
                _silence(nodes[key][0])
        new = [found for found in _said(message, check_types) if found not in seen]
        # If only the declaration of a result is wrong, later nodes are judged without it.
        first = [
            (key, text) for key, text in new if DECLARED in text and _undeclare_inner(nodes, key)
        ]
        new = first or new
        seen.update(new)
        for key, text in new:
            if key in known and _is_cause(key, known[key], bool(silenced)):
                yield known[key], text
        silenced += [] if first else [key for key, _ in new]
        if not new:
            return


def unknown_nodes(model: ir.Model) -> set[ir.Node]:
    """Return the nodes that onnx has no schema for and that call no function of the model."""
    functions = {(f.domain, f.name) for f in model.functions.values()}
    roots = [(model.graph, model.opset_imports)]
    roots += [(f.graph, f.opset_imports) for f in model.functions.values()]
    return {
        node
        for graph, imports in roots
        for _, node in _named(graph, "")
        if (node.domain, node.op_type) not in functions
        and (
            node.domain not in imports
            or not op_facts(node.op_type, imports[node.domain], node.domain)
        )
    }


def _undeclare_inner(nodes: _Nodes, key: str) -> bool:
    """Remove the declarations of the inner results of a node; return whether there were any."""
    if key not in nodes:
        return False
    node, holder = nodes[key]
    kept = [info for info in holder.value_info if info.name not in node.output]
    if len(kept) == len(holder.value_info):
        return False
    del holder.value_info[:]
    holder.value_info.extend(kept)
    return True


def _silence(node: onnx.NodeProto) -> None:
    """Mark a node as unknown and detach it from its consumers."""
    name = node.name
    node.Clear()
    node.op_type, node.name = "Constant", name
    node.output.append(f"{name}.silenced")
    # A Constant has this attribute, and this type, at every opset.
    value = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, float_data=[0])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(value)


def _is_cause(key: str, node: ir.Node, partial: bool) -> bool:
    """Return whether an error of a node does not only follow from earlier nodes.

    Args:
        key: Its key.
        node: The node.
        partial: Whether nodes were replaced, so that a body may lack its outputs.
    """
    if partial and any(True for _ in subgraphs(node)):
        return False
    if not key.startswith("/"):
        return True  # types inside functions are known to the inference only
    return all(value is None or value.type is not None for value in node.inputs)


def _said(message: onnx.ModelProto, check_types: bool) -> Iterator[tuple[str, str]]:
    """Yield the key of the innermost node and the text of each error."""
    try:
        infer_with_data(message, strict=True, check_types=check_types)
    except onnx.checker.ValidationError:
        return  # functions that call each other in a circle, which is MD441
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        pieces = _STEP.split(str(error))
    else:
        return
    for key, text in zip(pieces[1::2], pieces[2::2], strict=True):
        words = " ".join(_KIND.sub("", text).split()).rstrip(".")
        if words and not words.startswith(_NESTED):
            yield key, words


def _named(graph: ir.Graph, prefix: str) -> Iterator[tuple[str, ir.Node]]:
    for node in graph:
        key = _key(prefix, (output.name or "" for output in node.outputs))
        yield key, node
        if node.attributes.data:
            for name, body in subgraphs(node):
                yield from _named(body, f"{key}.{name}")


def _renamed(holder: Holder, prefix: str) -> Iterator[tuple[str, tuple[onnx.NodeProto, Holder]]]:
    for node in holder.node:
        node.name = _key(prefix, node.output)
        yield node.name, (node, holder)
        for name, body in named_bodies(node):
            yield from _renamed(body, f"{node.name}.{name}")


def _function_key(function: ir.Function | onnx.FunctionProto) -> str:
    path = function_path(function.domain, function.name, function.overload)
    return path.encode().hex()


def _key(prefix: str, outputs: Iterable[str]) -> str:
    first = next((name for name in outputs if name), "")
    # Names may contain the separators of an error text.
    return f"{prefix}/{first.encode().hex()}"


_MOST_ELEMENTS = 256
"""Most elements of a constant that onnx's rule for a node is given."""


class Told(NamedTuple):
    """The result of onnx's inference of a model.

    Attributes:
        types: Types of the values of the main graph, by name.
        failure: Why there are none; None if inference succeeded.
        refused: The message, if strict inference refuses it; otherwise None.
    """

    types: Mapping[str, onnx.TypeProto]
    failure: str | None = None
    refused: onnx.ModelProto | None = None


def of_model(model: ir.Model) -> Told:
    """Return the types of the values of the main graph that follow from its inputs alone.

    Declarations of other values are removed before, because they could hide a contradiction.
    """
    if is_too_large(model):
        return Told({}, TOO_LARGE)
    message = weightless(model)
    _undeclare_all(message.graph)
    graph, agrees, failure = by_onnx(message, check_types=True)
    if graph is None:
        return Told({}, failure, message)
    types = {v.name: v.type for v in (*graph.value_info, *graph.output)}
    return Told(types, None, None if agrees else message)


def refusals(
    model: ir.Model, message: onnx.ModelProto | None = None
) -> Iterator[tuple[ir.Node, str]]:
    """Yield the nodes that onnx's strict inference refuses, with the error.

    Nothing comes for a model that is too large for `of_model`.

    Args:
        model: The model, with inferred types on its values.
        message: `Told.refused`, which is changed; None for the message of the model.
    """
    if is_too_large(model):
        return
    message = message or importing_all(weightless(model))
    for node, text in complaints(model, message, unknown_nodes(model), check_types=True):
        if CONSEQUENCE not in text and not takes_names_for_zero(node):
            yield node, text


def _undeclare_all(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for value in graph.output:
        value.ClearField("type")
    for node in graph.node:
        for body in bodies(node):
            _undeclare_all(body)


def of_node(site: ShapeSite) -> list[tuple[ir.TypeProtocol | None, Shape | Unknown]]:
    """Return types and shapes of the outputs by onnx's rule for the operator of a node.

    Sizes that are not fixed get names, which onnx may copy to the outputs. The bodies of the node
    do not count.

    Raises:
        Unknown: If an input lacks a type, or onnx refuses the node.
    """
    node = site.node
    names: _Names = {}
    given = [(f"i{k}", value) for k, value in enumerate(node.inputs) if value is not None]
    types = {name: _type(site, value, names) for name, value in given}
    data = {name: _constant(site, value) for name, value in given}
    found = _ruled(node, site.opset, types, data)
    return [_result(site, k, found.get(f"o{k}"), names) for k in range(len(node.outputs))]


def refusal(node: ir.Node, opset: int) -> str | None:
    """Return why onnx's rule refuses a node with the types that are declared for its inputs.

    None if it does not, and where an input has no type.
    """
    given = [(f"i{k}", value) for k, value in enumerate(node.inputs) if value is not None]
    if any(value.type is None for _, value in given):
        return None
    types = {name: ir.serde.serialize_value(value).type for name, value in given}
    try:
        _ruled(node, opset, types, {name: _stored(value) for name, value in given})
    except Unknown as unknown:
        return unknown.why
    return None


def _ruled(
    node: ir.Node,
    opset: int,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto | None],
) -> Mapping[str, onnx.TypeProto]:
    """Return the types of `o0`, `o1`, ... by onnx's rule, from those of `i0`, `i1`, ..."""
    if any(attribute.is_ref() for attribute in node.attributes.values()):
        raise Unknown("unbound-attribute", "an attribute refers to a parameter without a value")
    call = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    call.input.extend("" if v is None else f"i{k}" for k, v in enumerate(node.inputs))
    call.output.extend(f"o{k}" for k in range(len(node.outputs)))
    newest = newest_of(node.domain) if node.domain in DOMAINS else NEWEST
    try:
        call.attribute.extend(
            ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values()
        )
        if is_fatal(call):
            raise ValueError("an attribute has a value that onnx does not survive")
        return onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(node.op_type, min(opset, newest), node.domain),
            call,
            dict(types),
            {name: tensor for name, tensor in data.items() if tensor is not None},
            opset_imports=[onnx.helper.make_opsetid(node.domain, opset)],
        )
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        onnx.defs.SchemaError,
        ir.serde.SerdeError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        text = " ".join(str(error).split())[:200].rstrip(".")
        raise Unknown("onnx-refuses", f"onnx's rule for `{node.op_type}` says: {text}") from error


_Names = dict[Expr, str]
"""Names for the sizes of one call that are not fixed."""


def _type(site: ShapeSite, value: ir.Value, names: _Names) -> onnx.TypeProto:
    type_ = site.knowledge.types.get(value)
    if type_ is None:
        raise Unknown("unknown-input", "", value)
    shape = site.knowledge.shapes.get(value)
    out = onnx.TypeProto()
    ir.serde.serialize_type_into(out, type_)
    tensor = innermost(out)
    if shape is not None and tensor is not None:
        tensor.shape.SetInParent()
        for size in shape:
            known = site.knowledge.equalities.resolved(size)
            if known.number is not None:
                tensor.shape.dim.add(dim_value=known.number)
            else:
                tensor.shape.dim.add(dim_param=names.setdefault(size, f"d{len(names)}"))
    return out


def _constant(site: ShapeSite, value: ir.Value) -> onnx.TensorProto | None:
    """Return the elements of a small constant; None for any other value."""
    if value.is_graph_input() or stored_tensor(value) is not None:
        return _stored(value)
    if value.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None
    numbers = constants(site.elements(value))
    rank = site.rank_of(value)
    if numbers is None or rank is None or len(numbers) > _MOST_ELEMENTS:
        return None
    kind = np.int64 if value.dtype == ir.DataType.INT64 else np.int32
    array = np.asarray(numbers, kind)
    return numpy_helper.from_array(array if rank else array.reshape(()))


def _stored(value: ir.Value) -> onnx.TensorProto | None:
    tensor = small_tensor(value, _MOST_ELEMENTS)
    return None if tensor is None else ir.serde.serialize_tensor(tensor)


def _result(
    site: ShapeSite, output: int, found: onnx.TypeProto | None, names: _Names
) -> tuple[ir.TypeProtocol | None, Shape | Unknown]:
    none = Unknown("no-rule", f"onnx has no shape for `{site.node.op_type}` here")
    known, types = site.knowledge.shapes, site.knowledge.types
    inputs = read_values(site.node)
    for value in inputs:
        if value not in known and isinstance(types.get(value), ir.TensorType | None):
            none = Unknown("unknown-input", "", value)
            break
    if found is None or not found.WhichOneof("value"):
        return None, none
    type_ = read_type(found)
    tensor = innermost(found)
    if tensor is None or not tensor.HasField("shape"):
        return type_, none
    code, why = "no-rule", f"onnx's rule for `{site.node.op_type}` leaves it open"
    if Trait.COUNTS in traits(site.node) and inputs:
        code, why = "data-dependent", f"it counts nonzero elements of `{inputs[0].name}`"
    # Some of onnx's rules take an unknown size for 0, and continue with it.
    least = 1 if names else 0
    sizes = {name: size for size, name in names.items()}
    return type_, tuple(
        integer(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value >= least
        else (sizes.get(dim.dim_param) or site.lost(axis, why, code=code, output=output))
        for axis, dim in enumerate(tensor.shape.dim)
    )
