"""Carrying around onnx_ir what it cannot hold.

Before a message is turned into an `onnx_ir.Model`, what onnx_ir would drop or refuse is taken out
of it (`hide`), with a placeholder that says which piece stood there; afterwards each piece gets a
place in the model (`restore`) from where `core.messages.message` writes it back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.judging.claims import Judgement
from onnx_kvtool.core.messages.forms import SparseInitializer, VerbatimType

__all__ = ["Hidden", "drop_external_extras", "external_extras", "hide", "restore"]

_A = onnx.AttributeProto
_KEY = "onnx_kvtool.external_data"
_CARRIED_KEYS = frozenset({"location", "offset", "length"})

_Piece = onnx.AttributeProto | onnx.TypeProto | onnx.SparseTensorProto | tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Hidden:
    """What was taken out of a message.

    Attributes:
        mark: Prefix of every placeholder; random, so that no file can forge one.
        pieces: What was taken out; a placeholder is the mark and the position here.
    """

    mark: str = field(default_factory=lambda: f"onnx_kvtool.{secrets.token_hex(16)}.")
    pieces: list[_Piece] = field(default_factory=list)

    def put(self, piece: _Piece) -> str:
        """Add a piece and return its placeholder."""
        self.pieces.append(piece)
        return f"{self.mark}{len(self.pieces) - 1}"

    def get(self, placeholder: str) -> _Piece:
        """Return the piece that `placeholder` stands for."""
        return self.pieces[int(placeholder.removeprefix(self.mark))]


def hide(found: Judgement) -> Hidden:
    """Take out of the judged message what onnx_ir cannot hold; changes the message."""
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
            if key in _CARRIED_KEYS:
                tensor.external_data.add(key=key, value=value)
        extras = tuple(entry for entry in entries if entry[0] not in _CARRIED_KEYS)
        tensor.metadata_props.add(key=hidden.mark, value=hidden.put(extras))
    for graph in found.sparse:
        for sparse in graph.sparse_initializer:
            _hide_sparse(graph, sparse, hidden)
        del graph.sparse_initializer[:]
    return hidden


def _hide_sparse(graph: onnx.GraphProto, sparse: onnx.SparseTensorProto, hidden: Hidden) -> None:
    # External, so that nothing but its shape and type can be read off the placeholder.
    piece = onnx.SparseTensorProto()
    piece.CopyFrom(sparse)
    placeholder = graph.initializer.add(
        name=sparse.values.name,
        data_type=sparse.values.data_type,
        dims=sparse.dims,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    placeholder.external_data.add(key="location", value=hidden.put(piece))


def restore(model: ir.Model, hidden: Hidden) -> None:
    """Put every hidden piece where its placeholder stands in `model`."""
    if not hidden.pieces:
        return
    for _, graph in walk.graphs(model):
        for value in graph.initializers.values():
            _restore_sparse(value, hidden)
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


def _restore_sparse(value: ir.Value, hidden: Hidden) -> None:
    tensor = value.const_value
    if isinstance(tensor, ir.ExternalTensor) and str(tensor.location).startswith(hidden.mark):
        piece = hidden.get(str(tensor.location))
        assert isinstance(piece, onnx.SparseTensorProto)
        value.const_value = SparseInitializer(piece)


def _restore_types(values: Iterable[ir.Value], hidden: Hidden) -> None:
    for value in values:
        placeholder = value.metadata_props.pop(hidden.mark, None)
        if placeholder is not None:
            piece = hidden.get(placeholder)
            assert isinstance(piece, onnx.TypeProto)
            value.type = VerbatimType(piece)


def _restore_attributes(attributes: MutableMapping[str, ir.Attr], hidden: Hidden) -> None:
    for name, attribute in list(attributes.items()):
        if attribute.type is not ir.AttributeType.STRING or attribute.is_ref():
            continue
        text = attribute.value
        if isinstance(text, str) and text.startswith(hidden.mark):
            piece = hidden.get(text)
            assert isinstance(piece, _A)
            attributes[name] = _with_form(piece)


def _with_form(piece: onnx.AttributeProto) -> ir.Attr:
    """Return the attribute with its true type and a value that is kept as it was.

    The value is the message of a sparse tensor or a list of them; the bytes of strings; or types
    of which those without a form are verbatim.
    """
    doc = piece.doc_string or None
    kind = ir.AttributeType(piece.type)
    if piece.type == _A.SPARSE_TENSOR:
        return ir.Attr(piece.name, kind, piece.sparse_tensor, doc_string=doc)
    if piece.type == _A.SPARSE_TENSORS:
        return ir.Attr(piece.name, kind, tuple(piece.sparse_tensors), doc_string=doc)
    if piece.type == _A.STRINGS:
        return ir.Attr(piece.name, kind, tuple(piece.strings), doc_string=doc)
    if piece.type == _A.TYPE_PROTO:
        return ir.Attr(piece.name, kind, _verbatim(piece.tp), doc_string=doc)
    if piece.type == _A.TYPE_PROTOS:
        types = tuple(_verbatim(type_) for type_ in piece.type_protos)
        return ir.Attr(piece.name, kind, types, doc_string=doc)
    raise AssertionError(f"attribute `{piece.name}` of type {kind} has a form and was hidden")


def _verbatim(type_: onnx.TypeProto) -> ir.TypeAndShape:
    return ir.TypeAndShape(VerbatimType(type_), None)


def external_extras(tensor: ir.TensorProtocol) -> tuple[tuple[str, str], ...]:
    """Return the entries of external data that onnx_ir does not hold, such as a checksum."""
    extras: tuple[tuple[str, str], ...] = tensor.meta.get(_KEY, ())
    return extras


def drop_external_extras(tensor: ir.TensorProtocol, keys: Iterable[str]) -> None:
    """Forget the entries of external data with these keys, which are then not written."""
    dropped = frozenset(keys)
    tensor.meta[_KEY] = tuple(e for e in external_extras(tensor) if e[0] not in dropped)
