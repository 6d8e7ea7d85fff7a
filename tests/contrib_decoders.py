"""Writes `fixtures/contrib`: decoders of operators of onnxruntime that no small model has.

They have the graph that the builder of onnxruntime-genai 0.18 writes around these operators, by
`python -m tests.contrib_decoders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["DECODERS", "FOLDER", "decoder"]

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "contrib"
DECODERS = ("experts", "sparse_attention")

_LAYERS, _WORDS, _WIDTH, _HEADS, _KV, _SIZE, _ROWS = 2, 61, 32, 4, 2, 16, 48
_EXPERTS, _INNER, _BLOCK = 4, 16, 16


@dataclass
class _Graph:
    """A graph that grows node by node."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(17))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, op_type: str, name: str, inputs: Sequence[str], **given: Any) -> str:
        """Add a node of one output, whose name is that of the node."""
        self.nodes.append(helper.make_node(op_type, inputs, [name], f"/{name}", **given))
        return name

    def own(self, op_type: str, name: str, inputs: Sequence[str], *more: str, **given: Any) -> str:
        """Add a node of onnxruntime, with `more` outputs."""
        outputs = [name, *more]
        self.nodes.append(
            helper.make_node(op_type, inputs, outputs, f"/{name}", domain="com.microsoft", **given)
        )
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Add random numbers that keep products about as large as their factors."""
        value = self.rng.standard_normal(shape) / np.sqrt(shape[-1])
        return self.constant(name, value.astype(np.float32))

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name


def decoder(kind: str) -> onnx.ModelProto:
    """Return the decoder of a name of `DECODERS`."""
    graph = _Graph()
    is_sparse = kind == "sparse_attention"
    one = graph.constant("one", np.array([1], np.int64))
    counted = graph.op("ReduceSum", "counted", ["attention_mask", one], keepdims=0)
    if not is_sparse:
        counted = graph.op("Sub", "last", [counted, one])
    lengths = graph.op("Cast", "lengths", [counted], to=TensorProto.INT32)
    shape = graph.op("Shape", "mask_shape", ["attention_mask"])
    axis = graph.constant("axis", np.array(1, np.int64))
    whole = graph.op("Gather", "mask_length", [shape, axis], axis=0)
    total = graph.op("Cast", "total", [whole], to=TensorProto.INT32)
    angles = np.outer(np.arange(_ROWS), 10.0 ** -np.linspace(0, 3, _SIZE // 2))
    for name, function in (("cos_cache", np.cos), ("sin_cache", np.sin)):
        graph.constant(name, function(angles).astype(np.float32))
    words = graph.weight("embed", _WORDS, _WIDTH)
    x = graph.op("Gather", "embedded", [words, "input_ids"], axis=0)
    for layer in range(_LAYERS):
        attend = _sparse_attention if is_sparse else _grouped_attention
        normed = _norm(graph, f"norm.{layer}.0", x)
        x = graph.op("Add", f"x.{layer}.0", [x, attend(graph, layer, normed, lengths, total)])
        normed = _norm(graph, f"norm.{layer}.1", x)
        inner = _dense(graph, layer, normed) if is_sparse else _experts(graph, layer, normed)
        x = graph.op("Add", f"x.{layer}.1", [x, inner])
    head = graph.weight("lm_head", _WIDTH, _WORDS)
    graph.op("MatMul", "logits", [_norm(graph, "norm.out", x), head])
    return _model(graph, kind, "rows" if is_sparse else "past_sequence_length")


def _norm(graph: _Graph, name: str, x: str) -> str:
    scale = graph.weight(f"{name}.weight", _WIDTH)
    return graph.op("SimplifiedLayerNormalization", name, [x, scale], axis=-1, epsilon=1e-5,
                    stash_type=1)  # fmt: skip


def _projected(graph: _Graph, layer: int, x: str) -> str:
    """Return query, key and value side by side."""
    width = (_HEADS + 2 * _KV) * _SIZE
    return graph.op("MatMul", f"qkv.{layer}", [x, graph.weight(f"qkv.{layer}.w", _WIDTH, width)])


def _joined(graph: _Graph, layer: int, rows: str) -> str:
    weight = graph.weight(f"o.{layer}.w", _HEADS * _SIZE, _WIDTH)
    return graph.op("MatMul", f"o.{layer}", [rows, weight])


def _caches(layer: int, what: str) -> tuple[str, str]:
    return f"{what}.{layer}.key", f"{what}.{layer}.value"


def _grouped_attention(graph: _Graph, layer: int, x: str, lengths: str, total: str) -> str:
    inputs = [_projected(graph, layer, x), "", "", *_caches(layer, "past_key_values"), lengths,
              total, "cos_cache", "sin_cache"]  # fmt: skip
    heads = {"num_heads": _HEADS, "kv_num_heads": _KV, "do_rotary": 1}
    caches = _caches(layer, "present")
    rows = graph.own("GroupQueryAttention", f"attention.{layer}", inputs, *caches, **heads)
    return _joined(graph, layer, rows)


def _sparse_attention(graph: _Graph, layer: int, x: str, lengths: str, total: str) -> str:
    """Attend to the own block, the one before and the first one; half of the heads to the own."""
    if layer == 0:
        starts = [[0, 1, 3, 6], [0, 1, 2, 3]]
        columns = [[0, 0, 1, 0, 1, 2], [0, 1, 2, -1, -1, -1]]
        graph.constant("block_row_indices", np.array(starts, np.int32))
        graph.constant("block_col_indices", np.array(columns, np.int32))
    inputs = [_projected(graph, layer, x), "", "", *_caches(layer, "past_key_values"),
              "block_row_indices", "block_col_indices", total, lengths, "cos_cache",
              "sin_cache"]  # fmt: skip
    rows = graph.own("SparseAttention", f"attention.{layer}", inputs, *_caches(layer, "present"),
                     num_heads=_HEADS, kv_num_heads=_KV, do_rotary=1,
                     sparse_block_size=_BLOCK)  # fmt: skip
    return _joined(graph, layer, rows)


def _dense(graph: _Graph, layer: int, x: str) -> str:
    up = graph.op("MatMul", f"up.{layer}", [x, graph.weight(f"up.{layer}.w", _WIDTH, 2 * _WIDTH)])
    gelu = graph.own("Gelu", f"gelu.{layer}", [up])
    weight = graph.weight(f"down.{layer}.w", 2 * _WIDTH, _WIDTH)
    return graph.op("MatMul", f"down.{layer}", [gelu, weight])


def _experts(graph: _Graph, layer: int, x: str) -> str:
    """Choose two experts, of numbers in the first layer, of codes of 4 bits in the second."""
    router = graph.op(
        "MatMul", f"routed.{layer}", [x, graph.weight(f"router.{layer}.w", _WIDTH, _EXPERTS)]
    )
    flat = graph.constant(f"router_shape.{layer}", np.array([-1, _EXPERTS], np.int64))
    router = graph.op("Reshape", f"router.{layer}", [router, flat])
    shapes = {"fc1": (_EXPERTS, 2 * _INNER, _WIDTH), "fc2": (_EXPERTS, _WIDTH, _INNER)}
    given = {
        "k": 2,
        "normalize_routing_weights": 1,
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
    }
    if layer == 0:
        weights = {name: graph.weight(f"{name}.{layer}", *shape) for name, shape in shapes.items()}
        inputs = [x, router, weights["fc1"], "", weights["fc2"]]
        return graph.own("MoE", f"experts.{layer}", inputs, **given)
    inputs = [x, router]
    for name, (experts, rows, columns) in shapes.items():
        codes = graph.rng.integers(0, 256, (experts, rows, columns // 2)).astype(np.uint8)
        scales = graph.rng.uniform(0.5, 1, (experts, rows, columns // _BLOCK)) / 24
        inputs.append(graph.constant(f"{name}.{layer}.codes", codes))
        inputs.append(graph.constant(f"{name}.{layer}.scales", scales.astype(np.float32)))
        inputs.append("")
    return graph.own("QMoE", f"experts.{layer}", inputs[:-1], block_size=_BLOCK, **given)


def _model(graph: _Graph, name: str, rows: str) -> onnx.ModelProto:
    def value(called: str, kind: int, *dims: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(called, kind, dims)

    tokens = ("batch_size", "sequence_length")
    held = _ROWS if name == "sparse_attention" else rows
    after = held if held == _ROWS else "total_sequence_length"
    pasts, presents = (
        [
            value(cache, TensorProto.FLOAT, "batch_size", _KV, dim, _SIZE)
            for layer in range(_LAYERS)
            for cache in _caches(layer, what)
        ]
        for what, dim in (("past_key_values", held), ("present", after))
    )
    inputs = [
        value("input_ids", TensorProto.INT64, *tokens),
        value("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length"),
    ]
    logits = value("logits", TensorProto.FLOAT, *tokens, _WORDS)
    made = helper.make_graph(
        graph.nodes, name, [*inputs, *pasts], [logits, *presents], graph.weights
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        made, opset_imports=imports, ir_version=10, producer_name="tests.contrib_decoders"
    )


if __name__ == "__main__":
    for each in DECODERS:
        onnx.save(decoder(each), FOLDER / f"{each}.onnx")
