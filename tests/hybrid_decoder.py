"""A small hybrid decoder as the model builder of onnxruntime-genai 0.18 writes Qwen3-Next.

One layer of linear attention, with the state of a convolution and of a recurrence, and one of full
attention, with a cache that grows; each behind a norm and before a gated feed-forward part. Weights
are drawn, names of inputs and outputs are the builder's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["HIDDEN", "STATES", "VOCABULARY", "empty_states", "hybrid_decoder"]

Array = np.ndarray[Any, Any]

VOCABULARY, HIDDEN, INNER, TAPS = 61, 24, 40, 4
HEADS, KV_HEADS, SIZE = 4, 2, 16
ASKING, STATES_OF_HEADS, KEY_SIZE, VALUE_SIZE = 2, 4, 5, 7
_KEYS, _VALUES = ASKING * KEY_SIZE, STATES_OF_HEADS * VALUE_SIZE
_CHANNELS = 2 * _KEYS + _VALUES
_MS = "com.microsoft"

STATES: dict[str, tuple[int | str, ...]] = {
    "past.0.conv": ("batch_size", _CHANNELS, TAPS - 1),
    "past.0.recurrent": ("batch_size", STATES_OF_HEADS, KEY_SIZE, VALUE_SIZE),
    "past_key_values.1.key": ("batch_size", KV_HEADS, "past_sequence_length", SIZE),
    "past_key_values.1.value": ("batch_size", KV_HEADS, "past_sequence_length", SIZE),
}
"""Dimensions of what a step hands on; the output is called `present...`."""


def empty_states(batch: int, dtype: Any = np.float32) -> dict[str, Array]:
    """Return the states before the first token: zeros, and caches without a row."""
    sizes = {"batch_size": batch, "past_sequence_length": 0}
    return {
        name: np.zeros([sizes.get(d, d) if isinstance(d, str) else d for d in dims], dtype)
        for name, dims in STATES.items()
    }


class _Graph:
    """Nodes and weights of one element type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(7)

    def op(
        self, op_type: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any
    ) -> str:
        """Add a node and return its first output."""
        name = f"{op_type}_{len(self.nodes)}"
        made = outputs or (f"{name}/output_0",)
        theirs = {"MatMul", "Split", "Reshape", "Transpose", "Mul", "Add", "Div", "Cast", "Sub"}
        theirs |= {"ReduceSum", "ReduceL2", "Max", "Sigmoid", "Gather", "Shape"}
        theirs |= {"SimplifiedLayerNormalization"}
        domain = "" if op_type in theirs else _MS
        self.nodes.append(
            helper.make_node(op_type, inputs, made, name, domain=domain, **attributes)
        )
        return made[0]

    def constant(self, value: Array, name: str | None = None) -> str:
        """Add a weight as it is."""
        name = name or f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int, scale: float = 0.4) -> str:
        """Add a drawn weight."""
        drawn = self._rng.standard_normal(shape) * scale
        return self.constant(drawn.astype(self.dtype))

    def ones(self, count: int) -> str:
        """Add the scale of a norm."""
        return self.constant((1 + self._rng.standard_normal(count) / 9).astype(self.dtype))

    def linear(self, x: str, width: int, inner: int = HIDDEN) -> str:
        """Return a product with a drawn weight."""
        return self.op("MatMul", x, self.weight(inner, width))


def hybrid_decoder(
    dtype: Any = np.float32, attributes: dict[str, Any] | None = None
) -> onnx.ModelProto:
    """Return the decoder at opset 21.

    Args:
        dtype: Element type of weights and states, float32 or float16.
        attributes: Others of LinearAttention.
    """
    graph = _Graph(dtype)
    hidden = graph.op("Gather", graph.weight(VOCABULARY, HIDDEN, scale=1.0), "input_ids")
    x = graph.op("SimplifiedLayerNormalization", hidden, graph.ones(HIDDEN), epsilon=1e-6, axis=-1)
    parts: tuple[Callable[[_Graph, str], str], ...] = (
        lambda g, v: _linear_attention(g, v, attributes or {}),
        _feed_forward,
        _full_attention,
        _feed_forward,
    )
    for number, part in enumerate(parts):
        outputs = (f"normed_{number}", "", "", f"sum_{number}")
        names = (part(graph, x), hidden, graph.ones(HIDDEN))
        x = graph.op("SkipSimplifiedLayerNormalization", *names, outputs=outputs, epsilon=1e-6)
        hidden = outputs[3]
    graph.nodes[-1].output.pop()
    graph.nodes[-1].output.pop()
    graph.nodes[-1].output.pop()
    graph.op("MatMul", x, graph.weight(HIDDEN, VOCABULARY), outputs=("logits",))
    return _model(graph)


def _linear_attention(graph: _Graph, x: str, attributes: dict[str, Any]) -> str:
    qkv, z = graph.linear(x, _CHANNELS), graph.linear(x, _VALUES)
    b, a = graph.linear(x, STATES_OF_HEADS), graph.linear(x, STATES_OF_HEADS)
    mixed = graph.op(
        "CausalConvWithState",
        graph.op("Transpose", qkv, perm=[0, 2, 1]),
        graph.weight(_CHANNELS, 1, TAPS),
        graph.constant(np.zeros(_CHANNELS, graph.dtype)),
        "past.0.conv",
        outputs=("mixed", "present.0.conv"),
        ndim=1,
        activation="silu",
        state_window=0,
    )
    rows = graph.op("Transpose", mixed, perm=[0, 2, 1])
    widths = graph.constant(np.array([_KEYS, _KEYS, _VALUES]))
    parts = ("queries", "keys", "values")
    graph.op("Split", rows, widths, outputs=parts, axis=-1)
    query, key = (_unit(graph, name) for name in parts[:2])
    query = graph.op("Mul", query, graph.constant(np.array(KEY_SIZE**-0.5, graph.dtype)))
    rng = np.random.default_rng(11)
    bias = graph.constant(rng.standard_normal(STATES_OF_HEADS).astype(np.float32))
    decay = graph.constant(-np.exp(rng.standard_normal(STATES_OF_HEADS)).astype(np.float32))
    gates = ("decay", "beta")
    graph.op("LinearAttentionGate", a, bias, decay, b, outputs=gates)
    how = {"update_rule": "gated_delta", "scale": 1.0, "state_window": 0} | attributes
    attended = graph.op(
        "LinearAttention",
        query,
        key,
        "values",
        "past.0.recurrent",
        *gates,
        outputs=("attended", "present.0.recurrent"),
        q_num_heads=ASKING,
        kv_num_heads=STATES_OF_HEADS,
        **how,
    )
    normed = graph.op("GatedRMSNorm", attended, graph.ones(VALUE_SIZE), z, epsilon=1e-6)
    return graph.linear(normed, HIDDEN, _VALUES)


def _unit(graph: _Graph, rows: str) -> str:
    """Return rows of which each head has length 1."""
    apart = graph.op("Reshape", rows, graph.constant(np.array([0, 0, ASKING, KEY_SIZE])))
    length = graph.op("ReduceL2", apart, graph.constant(np.array([-1])), keepdims=1)
    least = graph.constant(np.array(1e-3, graph.dtype))
    unit = graph.op("Div", apart, graph.op("Max", length, least))
    return graph.op("Reshape", unit, graph.constant(np.array([0, 0, _KEYS])))


def _full_attention(graph: _Graph, x: str) -> str:
    counted = graph.op("ReduceSum", "attention_mask", graph.constant(np.array([1])), keepdims=0)
    last = graph.op("Sub", counted, graph.constant(np.array([1])))
    lengths = graph.op("Cast", last, to=TensorProto.INT32)
    shape = graph.op("Shape", "attention_mask")
    total = graph.op("Gather", shape, graph.constant(np.array(1)))
    total = graph.op("Cast", total, to=TensorProto.INT32)
    angles = np.arange(32)[:, None] / 100.0 ** (np.arange(SIZE // 2) / (SIZE // 2))
    tables = [graph.constant(f(angles).astype(graph.dtype)) for f in (np.cos, np.sin)]
    attended = graph.op(
        "GroupQueryAttention",
        *(graph.linear(x, heads * SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS)),
        "past_key_values.1.key",
        "past_key_values.1.value",
        lengths,
        total,
        *tables,
        outputs=("answers", "present.1.key", "present.1.value"),
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        do_rotary=1,
    )
    return graph.linear(attended, HIDDEN, HEADS * SIZE)


def _feed_forward(graph: _Graph, x: str) -> str:
    gate = graph.linear(x, INNER)
    open_ = graph.op("Mul", gate, graph.op("Sigmoid", gate))
    return graph.linear(graph.op("Mul", open_, graph.linear(x, INNER)), HIDDEN, INNER)


def _model(graph: _Graph) -> onnx.ModelProto:
    real = helper.np_dtype_to_tensor_dtype(graph.dtype)
    tokens = ["batch_size", "sequence_length"]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, tokens),
        helper.make_tensor_value_info(
            "attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]
        ),
        *(helper.make_tensor_value_info(name, real, dims) for name, dims in STATES.items()),
    ]
    grown = {"past_sequence_length": "total_sequence_length"}
    outputs = [helper.make_tensor_value_info("logits", real, [*tokens, VOCABULARY])]
    for name, dims in STATES.items():
        after = [grown.get(d, d) if isinstance(d, str) else d for d in dims]
        present = name.replace("past_key_values", "present").replace("past", "present")
        outputs.append(helper.make_tensor_value_info(present, real, after))
    made = helper.make_graph(graph.nodes, "hybrid", inputs, outputs, graph.weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(_MS, 1)]
    return helper.make_model(made, opset_imports=imports, ir_version=10)
