"""Weights that two models have in common, but under other names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.files.external_data import array
from onnx_kvtool.core.messages.bodies import bodies
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.runtime.verification.shrinking.skeleton import WEIGHT_TYPES, Skeleton
from onnx_kvtool.runtime.verification.weights import is_recast, place_of

__all__ = ["with_counterparts"]


def with_counterparts(a: Skeleton, b: Skeleton) -> tuple[Skeleton, Skeleton]:
    """Return two models in which what they have in common has one name, that of A.

    A rewrite may read the bytes of a weight as another type or shape, under another name: those of
    MatMulNBits as uint4. Codes of one model alone that are one number throughout, such as the zero
    points that an operator takes for granted, are a constant: any part of it stands for the whole.

    External weights are told by their place, and not read; those in the file by what they hold.
    Where several weights of a model hold the same, nobody knows which is which. Weights of one type
    and shape that hold the same at different places are none: zeros may come from anything.
    """
    own_a, own_b = _own(a, b), _own(b, a)
    renamed: dict[str, str] = {}
    if own_a and own_b:
        known_a, known_b, taken = _told(own_a), _told(own_b), _names(b.message.graph)
        for key in known_a.keys() & known_b.keys():
            one, other = known_a[key], known_b[key]
            if one not in taken and _is_same(own_a[one], own_b[other]):
                renamed[other] = one
    a = _with_fills(a, own_a.keys() - renamed.values())
    b = _with_fills(b, own_b.keys() - renamed.keys())
    return a, _renamed(b, renamed) if renamed else b


def _is_same(one: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Return whether tensors that hold the same bytes are one weight."""
    if is_recast(one, other):
        return True
    is_alike = (one.dtype, tuple(one.shape)) == (other.dtype, tuple(other.shape))
    return is_alike and place_of(one) is not None


def _own(model: Skeleton, other: Skeleton) -> dict[str, ir.TensorProtocol]:
    """Return the weights without values in the message that the other model lacks."""
    return {
        name: tensor
        for name, tensor in model.weights.items()
        if name in model.bare and tensor.dtype in WEIGHT_TYPES and name not in other.weights
    }


def _told(weights: Mapping[str, ir.TensorProtocol]) -> dict[object, str]:
    """Return the weights that hold what no other one of them does, by what or where it is."""
    found: dict[object, str | None] = {}
    for name, tensor in weights.items():
        key = place_of(tensor) or (
            tensor_bytes(tensor),
            hashlib.sha256(tensor.tobytes()).digest(),
        )
        found[key] = None if key in found else name
    return {key: name for key, name in found.items() if name is not None}


def _names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph and its bodies give to values."""
    found = {value.name for value in graph.input}
    found |= {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        found.update(node.output)
        for body in bodies(node):
            found |= _names(body)
    return found


def _with_fills(model: Skeleton, names: Iterable[str]) -> Skeleton:
    """Return a model whose weights that are one number throughout stand in its message."""
    fills = {
        name: tensor
        for name in names
        if not isinstance(tensor := model.weights[name], ir.ExternalTensor) and _is_fill(tensor)
    }
    if not fills:
        return model
    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    for written in message.graph.initializer:
        if written.name in fills:
            held = ir.tensor(array(fills[written.name]), dtype=fills[written.name].dtype)
            held.name = written.name
            written.CopyFrom(ir.serde.serialize_tensor(held))
    return replace(model, message=message, bare=model.bare - fills.keys())


def _is_fill(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor is of one code throughout, which is not 0."""
    if tensor.dtype not in _CODES:
        return False
    data = np.frombuffer(tensor.tobytes(), np.uint8)
    is_even = tensor.dtype.bitwidth == 8 or int(data[0]) >> 4 == int(data[0]) & 15
    return is_even and bool(data[0]) and bool((data == data[0]).all())


_CODES = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4})


def _renamed(model: Skeleton, names: Mapping[str, str]) -> Skeleton:
    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    for tensor in message.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in _nodes(message.graph):
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]
    weights = {names.get(name, name): tensor for name, tensor in model.weights.items()}
    bare = frozenset(names.get(name, name) for name in model.bare)
    return replace(model, message=message, weights=weights, bare=bare)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from _nodes(body)
