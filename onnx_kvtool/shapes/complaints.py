"""What onnx's strict inference holds against a model, node by node.

It puts all its complaints into one text that names nodes by their names only, which may be missing
or stand twice. So the message that it is given has names of another kind: which graph, and which
output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx
import onnx.checker
import onnx.shape_inference
import onnx_ir as ir

from onnx_kvtool.core.walk import function_path, subgraphs
from onnx_kvtool.guard.inference import infer_with_data
from onnx_kvtool.model_io.forms import named_bodies
from onnx_kvtool.ops.schema import op_facts

__all__ = ["CONSEQUENCE", "DECLARED", "complaints", "unknown_nodes"]

CONSEQUENCE = "expected to have type but instead is null"
"""What a complaint says of a node behind another one that went wrong."""

DECLARED = "existing shape"
"""What a complaint says that compares a result with the shape that the file declares of it, which
nobody need rely on; a wrong element type is refused by runtimes."""

_Holder = onnx.GraphProto | onnx.FunctionProto
_Nodes = Mapping[str, tuple[onnx.NodeProto, _Holder]]
_STEP = re.compile(r"\(op_type:[^,()]*, node name: ([^\n]*?)\): ")
_KIND = re.compile(r"^(\[\w+\]\s*)+")
_NESTED = "Inference error(s):"
_ROUNDS = 16
"""Most times that the inference runs; each round but the last has found something new."""


def complaints(
    model: ir.Model,
    message: onnx.ModelProto,
    unknown: Collection[ir.Node],
    *,
    check_types: bool = False,
) -> Iterator[tuple[ir.Node, str]]:
    """Yield each node about which onnx's strict inference complains, with what it says.

    A node that is reached on several ways, such as one of a function that is called twice, is
    yielded for each different complaint. Left out is a complaint that may only follow from a type
    that is not known. Nothing is yielded where inference cannot start.

    Args:
        model: The model.
        message: The same for onnx, which is changed: its nodes are renamed, and some left out.
        unknown: The nodes of `unknown_nodes`.
        check_types: Whether types are held against the schemas too.
    """
    known = dict(_named(model.graph, ""))
    nodes = dict(_renamed(message.graph, ""))
    for function in model.functions.values():
        known.update(_named(function.graph, _function_key(function)))
    for proto in message.functions:
        nodes.update(_renamed(proto, _function_key(proto)))
    # The inference keeps all complaints to itself that come after a node which it does not know,
    # and leaves a body at its first bad node. Without such nodes, it gets further.
    silenced = [key for key, node in known.items() if node in unknown]
    seen: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        for key in silenced:
            if key in nodes:
                _silence(nodes[key][0])
        new = [found for found in _said(message, check_types) if found not in seen]
        # What follows from a result is judged without its declaration, if that alone is wrong.
        first = [(key, text) for key, text in new if DECLARED in text and _undeclare(nodes, key)]
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


def _undeclare(nodes: _Nodes, key: str) -> bool:
    """Leave out what the file declares of the inner results of a node; return whether it did."""
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
    """Make a node one of which nothing can be said and that gives nothing to others."""
    name = node.name
    node.Clear()
    node.op_type, node.name = "Constant", name
    node.output.append(f"{name}.silenced")
    # The one attribute, and a type, that a Constant has at every opset.
    value = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, float_data=[0])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(value)


def _is_cause(key: str, node: ir.Node, partial: bool) -> bool:
    """Return whether a complaint about a node is not only one about what stands before it.

    Args:
        key: Its key.
        node: The node.
        partial: Whether nodes were left out, so that a body may lack what it returns.
    """
    if partial and any(True for _ in subgraphs(node)):
        return False
    if not key.startswith("/"):
        return True  # types inside functions are known to the inference only
    return all(value is None or value.type is not None for value in node.inputs)


def _said(message: onnx.ModelProto, check_types: bool) -> Iterator[tuple[str, str]]:
    """Yield the key of the innermost node and what is said of it, for each complaint."""
    try:
        infer_with_data(message, strict=True, check_types=check_types)
    except onnx.checker.ValidationError:
        return  # functions that call each other in a circle, which is MD441
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        pieces = _STEP.split(str(error))
    else:
        return
    for key, said in zip(pieces[1::2], pieces[2::2], strict=True):
        words = " ".join(_KIND.sub("", said).split()).rstrip(".")
        if words and not words.startswith(_NESTED):
            yield key, words


def _named(graph: ir.Graph, prefix: str) -> Iterator[tuple[str, ir.Node]]:
    for node in graph:
        key = _key(prefix, (output.name or "" for output in node.outputs))
        yield key, node
        if node.attributes.data:
            for name, body in subgraphs(node):
                yield from _named(body, f"{key}.{name}")


def _renamed(holder: _Holder, prefix: str) -> Iterator[tuple[str, tuple[onnx.NodeProto, _Holder]]]:
    for node in holder.node:
        node.name = _key(prefix, node.output)
        yield node.name, (node, holder)
        for name, body in named_bodies(node):
            yield from _renamed(body, f"{node.name}.{name}")


def _function_key(function: ir.Function | onnx.FunctionProto) -> str:
    return function_path(function.domain, function.name, function.overload).encode().hex()


def _key(prefix: str, outputs: Iterable[str]) -> str:
    first = next((name for name in outputs if name), "")
    # Names may hold anything; what separates the parts of a complaint must not occur.
    return f"{prefix}/{first.encode().hex()}"
