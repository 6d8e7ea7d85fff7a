"""Decoders of any size for the benchmarks, native at opset 24."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_F, _INT64 = TensorProto.FLOAT, TensorProto.INT64


def scatter_bank(
    caches: int, shape: tuple[int, int, int, int], length: int, *, symbolic: bool, mode: str
) -> onnx.ModelProto:
    """Return a model of `caches` TensorScatter with common write_indices and nothing else.

    Args:
        caches: Number of caches.
        shape: (B, H, S, D) of each cache.
        length: L, rows of each update.
        symbolic: Whether B and L are declared by name.
        mode: `linear` or `circular`.
    """
    batch, heads, capacity, size = shape
    b, rows = ("batch", "length") if symbolic else (batch, length)
    inputs = [helper.make_tensor_value_info("write_indices", _INT64, [b])]
    outputs, nodes = [], []
    for i in range(caches):
        for name, dims in (("past", [b, heads, capacity, size]), ("new", [b, heads, rows, size])):
            inputs.append(helper.make_tensor_value_info(f"{name}.{i}", _F, dims))
        outputs.append(
            helper.make_tensor_value_info(f"present.{i}", _F, [b, heads, capacity, size])
        )
        node = helper.make_node(
            "TensorScatter",
            [f"past.{i}", f"new.{i}", "write_indices"],
            [f"present.{i}"],
            name=f"update.{i}",
            mode=mode,
        )
        nodes.append(node)
    graph = helper.make_graph(nodes, "bank", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def decoder(
    layers: int,
    *,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    capacity: int = 64,
    filler: int = 0,
    rank: int = 3,
    data_file: Path | None = None,
    weight_bytes: int = 0,
) -> onnx.ModelProto:
    """Return a decoder with static caches, as a builder of native models writes it.

    Args:
        layers: Number of layers; each has two TensorScatter, one Attention, two RMSNormalization
            and two RotaryEmbedding.
        hidden: Hidden size.
        heads: Query heads.
        kv_heads: Key and value heads.
        capacity: Rows of each cache.
        rank: 3 for caches (B, S, KV * D) as mobius builds them, 4 for (B, KV, S, D).
        filler: Elementwise nodes added to each layer, for a graph of a wanted size.
        data_file: Where to put a sparse file of weights, one large matrix per layer that is
            multiplied into nothing that matters; None for no external data.
        weight_bytes: Size of that file.
    """
    head_size = hidden // heads
    kv = kv_heads * head_size
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    rng = np.random.default_rng(0)
    inputs = [
        helper.make_tensor_value_info("hidden_states", _F, ["batch", "sequence_len", hidden]),
        helper.make_tensor_value_info("position_ids", _INT64, ["batch", "sequence_len"]),
        helper.make_tensor_value_info("write_indices", _INT64, ["batch"]),
        helper.make_tensor_value_info("nonpad_kv_seqlen", _INT64, ["batch"]),
    ]
    outputs = []

    def weight(name: str, *dims: int) -> str:
        array = (rng.standard_normal(dims) / hidden**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def op(kind: str, name: str, *ins: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(ins), [name], name=f"{name}/{kind}", **attributes))
        return name

    angles = np.outer(np.arange(capacity), 10000.0 ** (-np.arange(head_size // 2) / head_size * 2))
    weights.append(numpy_helper.from_array(np.cos(angles).astype(np.float32), "cos_cache"))
    weights.append(numpy_helper.from_array(np.sin(angles).astype(np.float32), "sin_cache"))
    x = "hidden_states"
    for i in range(layers):
        p = f"layers.{i}"
        normed = op("RMSNormalization", f"{p}.norm1", x, weight(f"{p}.norm1.weight", hidden))
        projected = {
            kind: op("MatMul", f"{p}.{kind}", normed, weight(f"{p}.{kind}.weight", hidden, width))
            for kind, width in (("q", hidden), ("k", kv), ("v", kv))
        }
        if rank == 4:
            for kind, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                shape = f"{p}.{kind}.shape"
                sizes = np.array([0, 0, count, head_size], np.int64)
                weights.append(numpy_helper.from_array(sizes, shape))
                split = op("Reshape", f"{p}.{kind}.split", projected[kind], shape)
                projected[kind] = op("Transpose", f"{p}.{kind}.heads", split, perm=[0, 2, 1, 3])
        for kind, count in (("q", heads), ("k", kv_heads)):
            projected[kind] = op(
                "RotaryEmbedding",
                f"{p}.{kind}.rotated",
                projected[kind],
                "cos_cache",
                "sin_cache",
                "position_ids",
                **({"num_heads": count} if rank == 3 else {}),
            )
        present = {}
        cache_dims: list[str | int] = (
            ["batch", capacity, kv] if rank == 3 else ["batch", kv_heads, capacity, head_size]
        )
        for kind, name in (("k", "key"), ("v", "value")):
            past = f"past.{i}.{name}"
            inputs.append(helper.make_tensor_value_info(past, _F, cache_dims))
            present[kind] = op(
                "TensorScatter",
                f"present.{i}.{name}",
                past,
                projected[kind],
                "write_indices",
                axis=-2,
            )
            outputs.append(helper.make_tensor_value_info(present[kind], _F, cache_dims))
        attended = op(
            "Attention",
            f"{p}.attention",
            projected["q"],
            present["k"],
            present["v"],
            "",
            "",
            "",
            "nonpad_kv_seqlen",
            is_causal=1,
            **({"q_num_heads": heads, "kv_num_heads": kv_heads} if rank == 3 else {}),
        )
        if rank == 4:
            merged = f"{p}.merged.shape"
            weights.append(numpy_helper.from_array(np.array([0, 0, hidden], np.int64), merged))
            turned = op("Transpose", f"{p}.turned", attended, perm=[0, 2, 1, 3])
            attended = op("Reshape", f"{p}.merged", turned, merged)
        out = op("MatMul", f"{p}.o", attended, weight(f"{p}.o.weight", hidden, hidden))
        x = op("Add", f"{p}.residual1", x, out)
        normed = op("RMSNormalization", f"{p}.norm2", x, weight(f"{p}.norm2.weight", hidden))
        up = op("MatMul", f"{p}.up", normed, weight(f"{p}.up.weight", hidden, hidden))
        gate = op("Sigmoid", f"{p}.gate", up)
        x = op("Add", f"{p}.residual2", x, op("Mul", f"{p}.mlp", up, gate))
        for j in range(filler):
            x = op("Relu" if j % 2 else "Neg", f"{p}.filler.{j}", x)
    outputs.append(helper.make_tensor_value_info(x, _F, ["batch", "sequence_len", hidden]))
    if data_file is not None:
        weights += _sparse_weights(data_file, weight_bytes, layers)
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def _sparse_weights(data_file: Path, size: int, count: int) -> list[onnx.TensorProto]:
    """Write a sparse file and return tensors that lie in it, one after the other."""
    with open(data_file, "wb") as file:
        file.truncate(size)
    tensors = []
    each = size // count // 4
    for i in range(count):
        tensor = onnx.TensorProto(name=f"layers.{i}.large", data_type=_F, dims=[each])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, entry in (
            ("location", data_file.name),
            ("offset", str(i * each * 4)),
            ("length", str(each * 4)),
        ):
            tensor.external_data.add(key=key, value=entry)
        tensors.append(tensor)
    return tensors
