"""Copies of a model that hand out values from within, and take mistakes that are planted there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnx_kvtool.runtime.comparison.compare import Tolerance, largest
from onnx_kvtool.runtime.sessions import Array
from onnx_kvtool.runtime.verification.places import GraphView

__all__ = ["difference", "handing_out", "is_seen", "mistake", "open_to_mistakes", "port"]

_T = onnx.TensorProto

_SHARE = 0.125
"""Of the largest magnitude of a value, by which a planted mistake moves each of its elements."""

_OLDEST = 7
"""The first opset in which Sub and Xor broadcast as they do today."""

_THROUGH: Mapping[str, tuple[int, npt.DTypeLike]] = {
    "float32": (_T.FLOAT, np.float32),
    "float64": (_T.DOUBLE, np.float64),
    "int32": (_T.INT32, np.int32),
    "int64": (_T.INT64, np.int64),
    "bool": (_T.BOOL, np.bool_),
    **dict.fromkeys(("float16", "bfloat16"), (_T.FLOAT, np.float32)),
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), (_T.INT32, np.int32)),
    **dict.fromkeys(("uint32", "uint64"), (_T.INT64, np.int64)),
}
"""By the dtype of a value, the type in which a mistake is subtracted from it. Runtimes subtract few
types, and a value of any other type comes back from this one with the same bits."""

_BACK: Mapping[str, int] = {
    "float16": _T.FLOAT16,
    "bfloat16": _T.BFLOAT16,
    "int8": _T.INT8,
    "uint8": _T.UINT8,
    "int16": _T.INT16,
    "uint16": _T.UINT16,
    "uint32": _T.UINT32,
    "uint64": _T.UINT64,
}
"""The dtypes that come back by a Cast, and to what."""


def handing_out(view: GraphView, names: Collection[str]) -> bytes:
    """Return a model that hands out `names` as well; no message is written anew.

    A message that follows another one is merged into it, which adds outputs to those that it has.
    """
    given = {value.name for value in view.proto.graph.output}
    more = onnx.ModelProto()
    # A value info without a type is filled in by either runtime.
    more.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in given)
    data: bytes = view.subject.model + more.SerializeToString()
    return data


def port(name: str) -> str:
    """Return the name of the input that plants a mistake in a value."""
    return f"{name}.kvtool_mistake"


def open_to_mistakes(
    view: GraphView, names: Collection[str], dtypes: Mapping[str, np.dtype[Any]]
) -> tuple[bytes, frozenset[str]]:
    """Return a model that also hands out `names`, and subtracts from them what it is fed.

    Each value of `dtypes` has an input more, `port(name)`, whose default of zero changes no bit of
    the value. One that is fed moves the value for all that read it, bodies and outputs included.

    Args:
        view: The model; its message is as it was before.
        names: Values of its main graph.
        dtypes: The dtype of each of them in which mistakes may be planted.

    Returns:
        The model, and the values that have such an input.
    """
    graph = view.proto.graph
    ports = {
        name: dtype.name
        for name, dtype in dtypes.items()
        if dtype.name in _THROUGH and _is_recent(view.proto)
    }
    own = list(graph.node)
    sizes = len(graph.output), len(graph.input), len(graph.initializer)
    nodes: list[onnx.NodeProto] = []
    for node in own:
        renamed = onnx.NodeProto.FromString(node.SerializeToString()) if _any(node, ports) else node
        nodes.append(renamed)
        for index, name in enumerate(node.output):
            if name in ports:
                renamed.output[index] = _right(name)
                nodes += _moved(name, ports[name])
    del graph.node[:]
    graph.node.extend(nodes)
    for name, dtype in ports.items():
        type_, numpy_type = _THROUGH[dtype]
        graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((), numpy_type), port(name)))
        graph.input.append(onnx.helper.make_tensor_value_info(port(name), type_, None))
    given = {value.name for value in graph.output}
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in given)
    data: bytes = view.proto.SerializeToString()
    del graph.node[:]
    graph.node.extend(own)
    for field, size in zip((graph.output, graph.input, graph.initializer), sizes, strict=True):
        del field[size:]
    return data, frozenset(ports)


def _any(node: onnx.NodeProto, ports: Collection[str]) -> bool:
    return any(name in ports for name in node.output)


def _right(name: str) -> str:
    """Return the name of what the producer of a value gives."""
    return f"{name}.kvtool_right"


def _is_recent(model: onnx.ModelProto) -> bool:
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return bool(versions) and min(versions) >= _OLDEST


def _moved(name: str, dtype: str) -> list[onnx.NodeProto]:
    """Return nodes that compute `name` of what its producer gives and of its input."""
    make = onnx.helper.make_node
    right = _right(name)
    if dtype == "bool":
        return [make("Xor", [right, port(name)], [name])]
    if dtype not in _BACK:
        return [make("Sub", [right, port(name)], [name])]
    wide, moved = f"{name}.kvtool_wide", f"{name}.kvtool_moved"
    return [
        make("Cast", [right], [wide], to=_THROUGH[dtype][0]),
        make("Sub", [wide, port(name)], [moved]),
        make("Cast", [moved], [name], to=_BACK[dtype]),
    ]


def mistake(value: Array) -> Array | None:
    """Return what to feed to plant a mistake in `value`; None for a type that takes none.

    Each element of a float moves by an eighth of the largest magnitude (by an eighth where all are
    zero), in a direction of its own, as neither a softmax nor a normalisation sees it when all of
    them move alike; infinity becomes NaN. An integer goes up by one. Of a mask the first column is
    the other way round.
    """
    if value.dtype.name not in _THROUGH or not value.size:
        return None
    dtype = np.dtype(_THROUGH[value.dtype.name][1])
    if dtype.kind == "b":
        columns = np.zeros(value.shape, np.bool_)
        columns[(..., slice(1)) if value.ndim else ...] = True
        return columns
    if dtype.kind == "i":
        return np.full((), -1, dtype)
    step = _SHARE * (largest(value) or 1.0)
    signs = np.random.default_rng(value.size).choice([-1.0, 1.0], value.shape)
    planted = np.asarray(step * signs, dtype)
    return np.where(np.isinf(value), value.astype(dtype), planted)


def difference(value: Array, wanted: Array) -> Array | None:
    """Return what to feed so that a value becomes `wanted`; None for a type that takes no mistake.

    Elements that are not finite stay as they are.
    """
    if value.dtype.name not in _THROUGH:
        return None
    dtype = np.dtype(_THROUGH[value.dtype.name][1])
    if dtype.kind == "b":
        return np.asarray(np.logical_xor(value, wanted))
    with np.errstate(all="ignore"):
        planted: Array = np.subtract(value.astype(dtype), wanted.astype(dtype))
        return np.where(np.isfinite(value.astype(np.float64)), planted, np.zeros((), dtype))


def is_seen(value: Array, tolerance: Tolerance) -> bool:
    """Return whether a mistake that is planted in `value` goes beyond `tolerance` somewhere."""
    if tolerance.atol == 0.0 == tolerance.rtol or value.dtype.name not in _THROUGH:
        return bool(value.size)  # compared bit for bit
    magnitudes = np.abs(value.astype(np.float64))
    if np.isinf(magnitudes).any():
        return True  # infinity is compared as it is
    magnitudes = magnitudes[~np.isnan(magnitudes)]
    if not magnitudes.size:
        return False
    step = _SHARE * (float(magnitudes.max()) or 1.0)
    return step > tolerance.atol + tolerance.rtol * float(magnitudes.min())
