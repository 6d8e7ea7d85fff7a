"""From an `onnx_ir.Model` to a protobuf message, with content that onnx_ir does not support."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, cast

import onnx
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.storage import new_mark, number_of
from onnx_kvtool.model_io.claims import CARRIED_KEYS, Judgement
from onnx_kvtool.model_io.verbatim import (
    Holder,
    LongList,
    SparseInitializer,
    TypeWriter,
    VerbatimType,
    write_type,
)

# Content that onnx_ir does not support.
#
# `hide` replaces what onnx_ir would drop or refuse by placeholders, before a message becomes an
# `onnx_ir.Model`. `restore` then puts each piece into the model, and `MessageWriter` writes it.


_A = onnx.AttributeProto
_KEY = "onnx_kvtool.external_data"


@dataclass(slots=True)
class Hidden:
    """The pieces that were taken out of a message.

    Attributes:
        mark: Prefix of every placeholder; random, so that no file can forge one.
        pieces: Messages, and entries of external data; a placeholder is the mark and a position
            here.
    """

    mark: str = field(default_factory=new_mark)
    pieces: list[Any] = field(default_factory=list)

    def put(self, piece: object) -> str:
        """Add a piece and return its placeholder."""
        self.pieces.append(piece)
        return f"{self.mark}{len(self.pieces) - 1}"

    def get(self, placeholder: str) -> Any:
        """Return the piece behind `placeholder`."""
        return self.pieces[int(placeholder.removeprefix(self.mark))]


def hide(found: Judgement) -> Hidden:
    """Take out the content of the judged message, in place, that onnx_ir does not support."""
    hidden = Hidden()
    for attribute in found.attributes:
        piece = _A()
        piece.CopyFrom(attribute)
        attribute.Clear()
        attribute.name, attribute.type = piece.name, _A.STRING
        attribute.s = hidden.put(piece).encode()
    for info in found.types:
        type_ = onnx.TypeProto()
        type_.CopyFrom(info.type)
        info.ClearField("type")
        info.metadata_props.add(key=hidden.mark, value=hidden.put(type_))
    for tensor in found.external:
        entries = [(entry.key, entry.value) for entry in tensor.external_data]
        del tensor.external_data[:]
        for key, value in entries:
            if key in CARRIED_KEYS:
                tensor.external_data.add(key=key, value=value)
        extras = tuple(entry for entry in entries if entry[0] not in CARRIED_KEYS)
        tensor.metadata_props.add(key=hidden.mark, value=hidden.put(extras))
    for graph in found.sparse:
        for sparse in graph.sparse_initializer:
            kept = onnx.SparseTensorProto()
            kept.CopyFrom(sparse)
            # External, so that nothing but its shape and type can be read off the placeholder.
            placeholder = graph.initializer.add(
                name=sparse.values.name,
                data_type=sparse.values.data_type,
                dims=sparse.dims,
                data_location=onnx.TensorProto.EXTERNAL,
            )
            placeholder.external_data.add(key="location", value=hidden.put(kept))
        del graph.sparse_initializer[:]
    return hidden


def restore(model: ir.Model, hidden: Hidden) -> None:
    """Replace every placeholder in `model` by its piece."""
    if not hidden.pieces:
        return
    for _, graph in walk.graphs(model):
        for value in graph.initializers.values():
            if (number := number_of(value.const_value, hidden.mark)) is not None:
                value.const_value = SparseInitializer(hidden.pieces[number])
        _restore_types((*graph.inputs, *graph.initializers.values(), *graph.outputs), hidden)
        for node in graph:
            _restore_types(node.outputs, hidden)
            _restore_attributes(node.attributes, hidden)
    for function in model.functions.values():
        _restore_attributes(function.attributes, hidden)
    for _, tensor in walk.tensors(model):
        placeholder = tensor.metadata_props.pop(hidden.mark, None)
        if placeholder is not None:
            tensor.meta[_KEY] = hidden.get(placeholder)


def _restore_types(values: Iterable[ir.Value], hidden: Hidden) -> None:
    for value in values:
        placeholder = value.metadata_props.pop(hidden.mark, None)
        if placeholder is not None:
            value.type = VerbatimType(hidden.get(placeholder))


def _restore_attributes(attributes: MutableMapping[str, ir.Attr], hidden: Hidden) -> None:
    for name, attribute in list(attributes.items()):
        if attribute.type is not ir.AttributeType.STRING or attribute.is_ref():
            continue
        text = attribute.value
        if isinstance(text, str) and text.startswith(hidden.mark):
            attributes[name] = _with_form(hidden.get(text))


def _with_form(piece: onnx.AttributeProto) -> ir.Attr:
    """Return the attribute with its true type and its value unchanged.

    The value is the message of a sparse tensor or a list of them, the bytes of strings, a long list
    of numbers, or types.
    """
    value: Any
    match piece.type:
        case _A.SPARSE_TENSOR:
            value = piece.sparse_tensor
        case _A.SPARSE_TENSORS:
            value = tuple(piece.sparse_tensors)
        case _A.STRINGS:
            value = tuple(piece.strings)
        case _A.TYPE_PROTO:
            value = _verbatim(piece.tp)
        case _A.TYPE_PROTOS:
            value = tuple(map(_verbatim, piece.type_protos))
        case _:
            return LongList(piece)
    kind = ir.AttributeType(piece.type)
    return ir.Attr(piece.name, kind, value, doc_string=piece.doc_string or None)


def _verbatim(type_: onnx.TypeProto) -> ir.TypeAndShape:
    return ir.TypeAndShape(VerbatimType(type_), None)


def external_extras(tensor: ir.TensorProtocol) -> tuple[tuple[str, str], ...]:
    """Return the entries of external data that onnx_ir drops, such as a checksum."""
    extras: tuple[tuple[str, str], ...] = tensor.meta.get(_KEY, ())
    return extras


def drop_external_extras(tensor: ir.TensorProtocol, keys: Iterable[str]) -> None:
    """Drop the entries of external data with these keys."""
    dropped = frozenset(keys)
    tensor.meta[_KEY] = tuple(e for e in external_extras(tensor) if e[0] not in dropped)


# From an `onnx_ir.Model` to a protobuf message, with everything that `read` carried.


_T = ir.AttributeType
_PLAIN = frozenset({_T.UNDEFINED, _T.INT, _T.INTS, _T.FLOAT, _T.FLOATS})
"""Types of attributes that onnx_ir's own writer keeps as they are."""

# Below this IR version a function has no value_info; what is known of its values stands in the main
# graph under `domain::name/value`, as PyTorch's exporter writes it and onnx_ir reads it.
_IR_WITH_FUNCTION_VALUE_INFO = 10
# Where onnx_ir keeps the quantization annotation of a value.
_ANNOTATION = "quant_parameter_tensor_names"


class MessageWriter:
    """Writes a model piece by piece; the model is not changed.

    onnx_ir's own writer drops sparse initializers and trailing empty outputs, doubles the metadata
    of tensors and quantization annotations of outputs, refuses maps and sparse attributes, and
    adds `value_info` for every initializer. This one writes what was read.

    Args:
        described: Names of initializers that get `value_info` although it says no more than the
            initializer itself.
        types: Writes the types of values; None for a writer that writes them as they are.
    """

    def __init__(
        self, described: frozenset[str] = frozenset(), types: TypeWriter | None = None
    ) -> None:
        self._described = described
        self._types = types or TypeWriter()

    def model(self, model: ir.Model) -> onnx.ModelProto:
        """Return the message of the whole model, without the content of its `Origin`."""
        out = onnx.ModelProto(ir_version=model.ir_version)
        names = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
        _say(out, model, *names)
        _imports(out.opset_import, model.opset_imports)
        self.metadata(out, model.metadata_props)
        for configuration in model.device_configurations:
            out.configuration.append(ir.serde.serialize_model_configuration(configuration))
        self.graph(out.graph, model.graph)
        inside = model.ir_version >= _IR_WITH_FUNCTION_VALUE_INFO
        for function in model.functions.values():
            written = out.functions.add()
            self.function(written, function)
            for value in _values_of(function.graph):
                if inside:
                    self.value_info(written.value_info, value)
                elif value.name and not function.overload:
                    name = f"{function.domain}::{function.name}/{value.name}"
                    self.value_info(out.graph.value_info, value, name)
        return out

    def graph(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        """Write one graph and its bodies."""
        _say(out, graph, "name", "doc_string")
        for value in graph.inputs:
            self.value(out.input.add(), value)
        self.initializers(out, graph)
        for node in graph:
            self.node(out, node)
            for value in node.outputs:
                if not value.is_graph_output():
                    self.value_info(out.value_info, value)
        for value in graph.outputs:
            self.value(out.output.add(), value)
        self.annotations(out, graph)
        self.metadata(out, graph.metadata_props)

    def function(self, out: onnx.FunctionProto, function: ir.Function) -> None:
        """Write one function, without `value_info`."""
        out.domain, out.name = function.domain, function.name
        _say(out, function, "overload", "doc_string")
        _imports(out.opset_import, function.opset_imports)
        self.metadata(out, function.metadata_props)
        out.input.extend(self.name(value) for value in function.inputs)
        out.output.extend(self.name(value) for value in function.outputs)
        for attribute in function.attributes.values():
            if attribute.value is None:
                out.attribute.append(attribute.name)
            else:
                self.attribute(out.attribute_proto.add(), attribute)
        for node in function.graph:
            self.node(out, node)

    def node(self, graph: Holder, node: ir.Node) -> None:
        """Write one node behind those that `graph` has."""
        inputs = ["" if value is None else value.name for value in node.inputs]
        outputs = [value.name for value in node.outputs]
        if None in inputs or None in outputs:
            for value in (*node.inputs, *node.outputs):
                if value is not None:
                    self.name(value)
        out = graph.node.add()  # without arguments, which take longer to read than to set
        out.op_type = node.op_type
        out.input.extend(inputs)
        out.output.extend(outputs)
        if node.domain:
            out.domain = node.domain
        if node.name:
            out.name = node.name
        if node.overload:
            out.overload = node.overload
        if node.doc_string:
            out.doc_string = node.doc_string
        if node.metadata_props:
            self.metadata(out, node.metadata_props)
        if node.attributes.data:
            for attribute in node.attributes.data.values():
                self.attribute(out.attribute.add(), attribute)
        for configuration in node.device_configurations:
            out.device_configurations.append(
                ir.serde.serialize_node_device_configuration(configuration)
            )

    def name(self, value: ir.Value) -> str:
        """Return the name of `value` in the file."""
        if value.name is None:
            raise KvtoolError(f"a value of `{value.producer()}` has no name")
        return value.name

    def initializers(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        """Write the initializers of one graph and what is declared of them."""
        inputs = set(graph.inputs)
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None:
                raise KvtoolError(f"initializer `{name}` has no value")
            self.initializer(out, name, tensor)
            if value not in inputs and (name in self._described or _says_more(value, tensor)):
                self.value_info(out.value_info, value)

    def initializer(self, out: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
        """Write one initializer."""
        if isinstance(tensor, SparseInitializer):
            sparse = out.sparse_initializer.add()
            sparse.CopyFrom(tensor.raw)
            sparse.values.name = name
            return
        written = out.initializer.add()
        self.tensor(written, tensor)
        written.name = name

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        """Write one tensor; for an external one, only the location of its data."""
        if isinstance(tensor, ir.TensorProtoTensor):
            out.CopyFrom(tensor.raw)
            del out.metadata_props[:]  # written below, as they may have been edited
            self.metadata(out, tensor.metadata_props)
            return
        ir.serde.serialize_tensor_into(out, tensor)
        if isinstance(tensor, ir.ExternalTensor):
            for key, value in external_extras(tensor):
                out.external_data.add(key=key, value=value)

    def attribute(self, out: onnx.AttributeProto, attribute: ir.Attr) -> None:
        """Write one attribute of a node or a function."""
        kind = attribute.type
        if attribute.is_ref():
            ir.serde.serialize_reference_attribute_into(out, attribute)
            return
        if kind in _PLAIN and type(attribute) is not LongList:
            ir.serde.serialize_attribute_into(out, attribute)
            return
        out.name = attribute.name
        out.type = cast("onnx.AttributeProto.AttributeType", kind.value)
        if attribute.doc_string:
            out.doc_string = attribute.doc_string
        if type(attribute) is LongList:
            (out.ints if kind is _T.INTS else out.floats).MergeFrom(attribute.numbers)
        else:
            self._attribute_value(out, kind, attribute.value)

    def _attribute_value(
        self, out: onnx.AttributeProto, kind: ir.AttributeType, value: Any
    ) -> None:
        """Write a value that onnx_ir's own writer loses something of, refuses, or logs."""
        match kind:
            case _T.GRAPH:
                self.graph(out.g, value)
            case _T.GRAPHS:
                for graph in value:
                    self.graph(out.graphs.add(), graph)
            case _T.TENSOR:
                self.tensor(out.t, value)
            case _T.TENSORS:
                for tensor in value:
                    self.tensor(out.tensors.add(), tensor)
            case _T.STRING:
                out.s = _encoded(value)
            case _T.STRINGS:
                out.strings.extend(map(_encoded, value))
            case _T.TYPE_PROTO:
                write_type(out.tp, value.type, value.shape)
            case _T.TYPE_PROTOS:
                for type_ in value:
                    write_type(out.type_protos.add(), type_.type, type_.shape)
            case _T.SPARSE_TENSOR:
                out.sparse_tensor.CopyFrom(value)
            case _T.SPARSE_TENSORS:
                out.sparse_tensors.extend(value)

    def value_info(self, out: Any, value: ir.Value, name: str = "") -> None:
        """Write the known type and shape of an inner value, if any."""
        if not value.name or (
            value.type is None
            and value.shape is None
            and not value.metadata_props
            and not value.doc_string
        ):
            return
        self.value(out.add(), value, name)

    def value(self, out: onnx.ValueInfoProto, value: ir.Value, name: str = "") -> None:
        """Write the declaration of a value, under its own name when `name` is empty."""
        out.name = name or self.name(value)
        if value.doc_string:
            out.doc_string = value.doc_string
        if value.metadata_props:
            self.metadata(out, value.metadata_props)
        if value.type is not None or value.shape is not None:
            self._types.write(out.type, value.type, value.shape)

    def annotations(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        """Write the quantization annotations of the values of one graph."""
        for value in _values_of(graph):
            if parameters := value.meta.get(_ANNOTATION):
                annotation = out.quantization_annotation.add(tensor_name=self.name(value))
                for key in sorted(parameters):
                    annotation.quant_parameter_tensor_names.add(key=key, value=parameters[key])

    def metadata(self, out: Any, entries: Mapping[str, str]) -> None:
        """Write metadata, sorted by key."""
        for key in sorted(entries):
            out.metadata_props.add(key=key, value=entries[key])


def _values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield every value that `graph` defines, once."""
    yield from graph.inputs
    inputs = set(graph.inputs)
    for value in graph.initializers.values():
        if value not in inputs:
            yield value
    for node in graph:
        yield from node.outputs


def _say(out: Any, source: object, *names: str) -> None:
    """Write those of the named fields that are not empty."""
    for name in names:
        if value := getattr(source, name):
            setattr(out, name, value)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _imports(out: Any, versions: Mapping[str, int]) -> None:
    for domain, version in versions.items():
        out.add(domain=domain, version=version)


def _says_more(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    """Return whether the declaration of an initializer says more than its tensor."""
    if value.doc_string or value.metadata_props:
        return True
    type_, shape = value.type, value.shape
    if type_ is not None and (type_.denotation or type_ != ir.TensorType(tensor.dtype)):
        return True
    if shape is None:
        return False
    return shape != tensor.shape or any(shape.get_denotation(i) for i in range(len(shape)))
