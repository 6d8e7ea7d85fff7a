"""A model as text in onnx's own syntax."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.model_io.message import MessageWriter
from onnx_kvtool.model_io.model import origin, reason
from onnx_kvtool.model_io.sorting import natural
from onnx_kvtool.model_io.verbatim import SparseInitializer
from onnx_kvtool.review.digests import (
    Digests,
    attribute_head,
    identifier,
    quoted,
    scalar_attribute,
    type_text,
    word,
)

# A canonical message: it does not depend on the field or file that stores a tensor.


CONTENT, REMARK = "kvtool.content", "kvtool.remark"
"""Entries of `external_data` with the content of a tensor, and with a remark for people."""


class CanonicalWriter(MessageWriter):
    """Writes the content of tensors; see `Digests.content`.

    Only metadata whose keys begin with `prefix` are written.
    """

    def __init__(self, digests: Digests, prefix: str = "") -> None:
        super().__init__()  # without `value_info` that only repeats an initializer
        self._digests, self._prefix = digests, prefix

    def metadata(self, out: Any, entries: Mapping[str, str]) -> None:
        """Write metadata, sorted by key."""
        own = {key: text for key, text in entries.items() if key.startswith(self._prefix)}
        super().metadata(out, own)

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        """Write type, shape, content and metadata of one tensor."""
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy())
        if tensor.name:
            out.name = tensor.name
        if tensor.doc_string:
            out.doc_string = tensor.doc_string
        self.metadata(out, tensor.metadata_props)
        content, remark = self._digests.content(tensor)
        out.external_data.add(key=CONTENT, value=content)
        if remark:
            out.external_data.add(key=REMARK, value=remark)

    def initializer(self, out: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
        """Write one initializer, dense or sparse."""
        written = out.initializer.add()
        self.tensor(written, tensor)
        written.name = name
        if isinstance(tensor, SparseInitializer):
            written.external_data.add(key=REMARK, value="sparse")


def canonical(model: ir.Model, digests: Digests, prefix: str = "") -> onnx.ModelProto:
    """Return the message of a model, with opset imports, functions and metadata sorted.

    Nodes, values and attributes keep their order.

    Raises:
        UnreadableModel: If a part of the model has no written form, such as text that is not UTF-8.
    """
    try:
        message = CanonicalWriter(digests, prefix).model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise UnreadableModel(f"it cannot be written as text: {reason(error)}") from error
    message.training_info.extend(origin(model).training)
    message.opset_import.sort(key=lambda entry: entry.domain)
    message.functions.sort(key=lambda f: (f.domain, f.name, f.overload))
    return message


# Lines of ONNX text for `git diff`: one for each value, initializer and node. The syntax cannot
# express metadata and remarks below the model, which are comments.


_A = onnx.AttributeProto
_STEP = "   "


def model_lines(model: ir.Model, digests: Digests, prefix: str = "") -> Iterator[str]:
    """Yield the lines of a model, and of the metadata whose keys begin with `prefix`.

    Opset imports, functions, metadata, initializers and declarations of inner values are sorted,
    attributes of a node as well; inputs, outputs and nodes keep their order.

    Raises:
        UnreadableModel: If a tensor cannot be read.
        KvtoolError: If a part of the model has no written form.
    """
    with collector_paused():
        message = canonical(model, digests, prefix)
    yield "<"
    yield from _separated(_header(message), _STEP)
    yield ">"
    for configuration in message.configuration:
        yield f"# configuration: {_digest(configuration)}"
    for training in message.training_info:
        yield f"# training_info: {_digest(training)}"
    yield from _graph(message.graph, "", "")
    for function in message.functions:
        yield from _function(function)


def _header(message: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    yield f"ir_version: {message.ir_version}", ""
    yield _imports(message.opset_import), ""
    for name in ("producer_name", "producer_version", "domain"):
        if text := getattr(message, name):
            yield f"{name}: {quoted(text)}", ""
    if message.model_version:
        yield f"model_version: {message.model_version}", ""
    yield from ((text, "") for text in _doc(message))
    if message.metadata_props:
        # Broken over lines, because exporters and quantisers write dozens of entries.
        entries = [f"{_STEP * 2}{quoted(e.key)}: {quoted(e.value)}" for e in message.metadata_props]
        yield "metadata_props: [\n" + ",\n".join(entries) + f"\n{_STEP}]", ""


def _imports(imports: Iterable[onnx.OperatorSetIdProto]) -> str:
    entries = [f"{quoted(entry.domain)} : {entry.version}" for entry in imports]
    return f"opset_import: [{', '.join(entries)}]"


def _separated(items: Iterable[tuple[str, str]], indent: str) -> Iterator[str]:
    """Yield items with their comments, one per line and a comma behind each but the last."""
    listed = list(items)
    for place, (text, remark) in enumerate(listed):
        comma = "," if place < len(listed) - 1 else ""
        comment = f"  # {remark}" if remark else ""
        yield from f"{indent}{text}{comma}{comment}".split("\n")


def _graph(graph: onnx.GraphProto, indent: str, label: str) -> Iterator[str]:
    """Yield a graph; the first line starts with `label`, which is indented already."""
    yield from _remarks(graph, indent)
    inner = indent + _STEP
    yield f"{indent}{label}{identifier(graph.name or 'main_graph')} ("
    yield from _separated(map(_value, graph.input), inner)
    yield f"{indent}) => ("
    yield from _separated(map(_value, graph.output), inner)
    yield f"{indent})"
    held = map(_initializer, sorted(graph.initializer, key=_by_name))
    if declared := [*held, *_sorted_values(graph)]:
        yield f"{indent}<"
        yield from _separated(declared, inner)
        yield f"{indent}>"
    for note in sorted(graph.quantization_annotation, key=lambda note: note.tensor_name):
        entries = ", ".join(map(_entry, note.quant_parameter_tensor_names))
        yield f"{indent}# quantization of {quoted(note.tensor_name)}: {entries}"
    yield f"{indent}{{"
    for node in graph.node:
        yield from _node(node, inner)
    yield f"{indent}}}"


def _by_name(entry: onnx.TensorProto | onnx.ValueInfoProto) -> tuple[object, ...]:
    return natural(entry.name)


def _sorted_values(piece: onnx.GraphProto | onnx.FunctionProto) -> Iterable[tuple[str, str]]:
    return map(_value, sorted(piece.value_info, key=_by_name))


def _value(value: onnx.ValueInfoProto) -> tuple[str, str]:
    type_ = type_text(value.type)
    remarks = [*map(_entry, value.metadata_props), *_doc(value), *_denotations(value.type)]
    return f"{type_} {identifier(value.name)}".lstrip(), ", ".join(remarks)


def _denotations(type_: onnx.TypeProto) -> list[str]:
    remarks = [f"denotation: {quoted(type_.denotation)}"] if type_.denotation else []
    if type_.WhichOneof("value") == "tensor_type":
        for axis, dim in enumerate(type_.tensor_type.shape.dim):
            if dim.denotation:
                remarks.append(f"denotation of dimension {axis}: {quoted(dim.denotation)}")
    return remarks


def _initializer(tensor: onnx.TensorProto) -> tuple[str, str]:
    text, remark = tensor_text(tensor)
    type_, _, content = text.partition(" = ")
    remarks = [*([remark] if remark else ()), *map(_entry, tensor.metadata_props), *_doc(tensor)]
    return f"{type_} {identifier(tensor.name)} = {content}", ", ".join(remarks)


def tensor_text(tensor: onnx.TensorProto) -> tuple[str, str]:
    """Return a tensor of a canonical message without its name, and a remark for people."""
    name = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    dims = f"[{','.join(map(str, tensor.dims))}]" if tensor.dims else ""
    held = {entry.key: entry.value for entry in tensor.external_data}
    return f"{name}{dims} = {held.get(CONTENT, '')}", held.get(REMARK, "")


def _node(node: onnx.NodeProto, indent: str) -> Iterator[str]:
    yield from _remarks(node, indent)
    for configuration in node.device_configurations:
        yield f"{indent}# device configuration: {_digest(configuration)}"
    name = f"[{identifier(node.name)}] " if node.name else ""
    domain = f"{word(node.domain)}." if node.domain else ""
    overload = f":{word(node.overload)}" if node.overload else ""
    head = f"{indent}{name}{_names(node.output)} = {domain}{word(node.op_type)}{overload}"
    call = f" ({_names(node.input)})"
    attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
    for attribute in attributes:
        if attribute.doc_string:
            yield f"{indent}# doc_string of {word(attribute.name)}: {quoted(attribute.doc_string)}"
    blocks = [list(attribute_lines(attribute, indent + _STEP)) for attribute in attributes]
    if all(len(lines) == 1 for lines in blocks):
        inside = ", ".join(lines[0].strip() for lines in blocks)
        yield f"{head} <{inside}>{call}" if inside else head + call
        return
    yield f"{head}{call} <"
    yield from _joined(blocks)
    yield f"{indent}>"


def _joined(blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of blocks, with a comma behind each block but the last."""
    for place, lines in enumerate(blocks, 1):
        yield from lines[:-1]
        yield lines[-1] + ("," if place < len(blocks) else "")


def attribute_lines(attribute: onnx.AttributeProto, indent: str) -> Iterator[str]:
    """Yield an attribute of a canonical message: one line, or as many as its graphs have."""
    text = scalar_attribute(attribute)
    if text is not None:
        yield indent + text
        return
    head = attribute_head(attribute)
    if attribute.type == _A.GRAPH:
        yield from _graph(attribute.g, indent, head)
    elif attribute.type == _A.GRAPHS:
        yield f"{indent}{head}["
        yield from _joined([list(_graph(g, indent + _STEP, "")) for g in attribute.graphs])
        yield f"{indent}]"
    elif attribute.type == _A.TENSOR:
        yield f"{indent}{head}{tensor_text(attribute.t)[0]}"
    elif attribute.type == _A.TENSORS:
        texts = [tensor_text(tensor)[0] for tensor in attribute.tensors]
        yield f"{indent}{head}[{', '.join(texts)}]"
    else:
        yield f"{indent}{head}{_digest(attribute)}"


def _function(function: onnx.FunctionProto) -> Iterator[str]:
    yield "<"
    header = [(f"domain: {quoted(function.domain)}", "")]
    imports = sorted(function.opset_import, key=lambda entry: entry.domain)
    header.append((_imports(imports), ""))
    if function.overload:
        header.append((f"overload: {quoted(function.overload)}", ""))
    header += [(text, "") for text in _doc(function)]
    yield from _separated(header, _STEP)
    yield ">"
    for entry in function.metadata_props:
        yield f"# {_entry(entry)}"
    defaults = ["".join(attribute_lines(a, "")) for a in function.attribute_proto]
    parameters = ", ".join(sorted((*map(identifier, function.attribute), *defaults)))
    shown = f" <{parameters}>" if parameters else ""
    names = _names(function.input), _names(function.output)
    yield f"{identifier(function.name)}{shown} ({names[0]}) => ({names[1]})"
    if function.value_info:
        yield "<"
        yield from _separated(_sorted_values(function), _STEP)
        yield ">"
    yield "{"
    for node in function.node:
        yield from _node(node, _STEP)
    yield "}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(identifier, names))


def _remarks(piece: onnx.GraphProto | onnx.NodeProto, indent: str) -> Iterator[str]:
    for remark in (*_doc(piece), *map(_entry, piece.metadata_props)):
        yield f"{indent}# {remark}"


def _doc(piece: Any) -> list[str]:
    """Return the documentation of any message; empty if there is none."""
    return [f"doc_string: {quoted(piece.doc_string)}"] if piece.doc_string else []


def _entry(entry: onnx.StringStringEntryProto) -> str:
    return f"{word(entry.key)}: {quoted(entry.value)}"


def _digest(message: object) -> str:
    data = message.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
    return f'["sha256": "{hashlib.sha256(data).hexdigest()[:32]}"]'
