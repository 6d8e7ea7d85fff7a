"""Small models with TensorScatter, and what TensorScatter means, written from its text alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

Dim = int | str | None


def tensor_scatter_oracle(
    past_cache: np.ndarray,
    update: np.ndarray,
    write_indices: np.ndarray | None,
    axis: int,
    mode: str,
) -> np.ndarray:
    """Return present_cache, element by element; only the sequence coordinate is wrapped."""
    axis = axis % past_cache.ndim
    present_cache = past_cache.copy()
    for place in itertools.product(*(range(n) for n in update.shape)):
        start = 0 if write_indices is None else int(write_indices[place[0]])
        row = start + place[axis]
        if mode == "circular":
            row %= past_cache.shape[axis]
        assert 0 <= row < past_cache.shape[axis]
        present_cache[(*place[:axis], row, *place[axis + 1 :])] = update[place]
    return present_cache


def value(name: str, dtype: int, dims: Sequence[Dim] | None) -> onnx.ValueInfoProto:
    """Return a value declaration; None among the dims is an unknown one, None a missing shape."""
    return helper.make_tensor_value_info(name, dtype, None if dims is None else list(dims))


def tensor_scatter_node(
    past: str = "past_cache",
    update: str = "update",
    write_indices: str | None = "write_indices",
    present: str = "present_cache",
    **attributes: Any,
) -> onnx.NodeProto:
    """Return a TensorScatter; `write_indices=None` leaves the input out, "" writes it empty."""
    inputs = [past, update] + ([] if write_indices is None else [write_indices])
    given = {k: v for k, v in attributes.items() if v is not None}
    return helper.make_node("TensorScatter", inputs, [present], name=f"ts_{present}", **given)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *,
    opset: int = 24,
    ir_version: int = 10,
    initializers: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a model of these nodes; further domains are imported as the nodes need them."""
    domains = sorted({n.domain for n in nodes} - {""})
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, initializer=initializers)
    return helper.make_model(
        graph, opset_imports=imports, ir_version=ir_version, functions=functions
    )


def one_update(
    past: Sequence[Dim] | None,
    update: Sequence[Dim] | None,
    *,
    batch: Dim = None,
    dtype: int = onnx.TensorProto.FLOAT,
    write_indices: str | None = "write_indices",
    axis: int | None = None,
    mode: str | None = None,
    opset: int = 24,
) -> onnx.ModelProto:
    """Return a model with one TensorScatter whose cache, update and indices are graph inputs."""
    inputs = [value("past_cache", dtype, past), value("update", dtype, update)]
    if write_indices:
        inputs.append(value("write_indices", onnx.TensorProto.INT64, [batch]))
    node = tensor_scatter_node(write_indices=write_indices, axis=axis, mode=mode)
    return model([node], inputs, [value("present_cache", dtype, past)], opset=opset)
