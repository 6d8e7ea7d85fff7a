"""Tensors in the place of the external data that stood for them while a model was read."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import onnx_ir as ir

from onnx_kvtool.core import walk

__all__ = ["new_mark", "number_of", "put_back"]

_Taken = Callable[[ir.TensorProtocol | None], ir.TensorProtocol | None]


def new_mark() -> str:
    """Return what the locations of placeholders begin with; random, so that no model has one.

    A number follows, by which whoever wrote the placeholder knows the tensor.
    """
    return f"onnx_kvtool.{secrets.token_hex(16)}."


def number_of(tensor: ir.TensorProtocol | None, mark: str) -> int | None:
    """Return the number of a placeholder with this mark; None for what is none."""
    if not isinstance(tensor, ir.ExternalTensor):
        return None
    location = str(tensor.location)
    return int(location.removeprefix(mark)) if location.startswith(mark) else None


def put_back(model: ir.Model, taken: _Taken) -> None:
    """Put every tensor where its placeholder stands in `model`."""
    for _, graph in walk.graphs(model):
        for value in graph.initializers.values():
            if (tensor := taken(value.const_value)) is not None:
                value.const_value = tensor
        for node in graph:
            if node.attributes.data:
                _put_attributes_back(node.attributes.data, taken)
    for function in model.functions.values():
        _put_attributes_back(function.attributes.data, taken)


def _put_attributes_back(attributes: dict[str, ir.Attr], taken: _Taken) -> None:
    for name, attribute in attributes.items():
        if attribute.is_ref() or attribute.value is None:
            continue
        kind, doc = attribute.type, attribute.doc_string
        if kind is ir.AttributeType.TENSOR:
            if (tensor := taken(attribute.value)) is not None:
                attributes[name] = ir.Attr(name, kind, tensor, doc_string=doc)
        elif kind is ir.AttributeType.TENSORS:
            tensors = tuple(taken(value) or value for value in attribute.value)
            attributes[name] = ir.Attr(name, kind, tensors, doc_string=doc)
