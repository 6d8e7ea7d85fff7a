"""Decoders whose caches grow, as exporters write them: by Concat, or in GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Pattern", "Size", "growing_decoder"]

Pattern = Literal["pytorch", "optimum", "contrib"]
"""How attention is written."""

_F, _INT64, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.INT32
_TOTAL = "past_sequence_length + sequence_length"


@dataclass(frozen=True)
class Size:
    """The sizes of a decoder: layers, hidden size, heads, and rows of its tables of positions."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    positions: int

    @property
    def head(self) -> int:
        """D, elements of a head."""
        return self.hidden // self.heads


def growing_decoder(size: Size, attention: Pattern, window: int | None = None) -> onnx.ModelProto:
    """Return a decoder over hidden states, float32, opset 18.

    `pytorch` is what PyTorch 2.13's exporter makes of `scaled_dot_product_attention`, the default
    of transformers: Concat, heads repeated by Expand, the root of the scale on queries and on all
    keys, which are turned as a tensor of rank 3, a mask made of positions and `attention_mask`,
    Softmax. `optimum` is what optimum 2.1 makes of it, which turns the keys at rank 4. `contrib` is
    that of onnxruntime-genai's model builder, with GroupQueryAttention and shared buffers.

    With a `window` of W tokens, not in `contrib`, caches keep the last W - 1 rows of Concat, as
    transformers' sliding ones do, and there is no `attention_mask`.
    """
    return _Building(size, attention, window).model()


class _Building:
    def __init__(self, size: Size, attention: Pattern, window: int | None) -> None:
        self.size, self.is_contrib, self.window = size, attention == "contrib", window
        self.turns_flat = attention == "pytorch"
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)
        self.inputs = [self._info("hidden_states", "sequence_length", size.hidden)]
        total = "total_sequence_length" if self.is_contrib else _TOTAL
        self.rows = ("past_sequence_length", total if window is None else "kept_sequence_length")
        if self.is_contrib:
            self.inputs += [
                helper.make_tensor_value_info("seqlens_k", _INT32, ["batch_size"]),
                helper.make_tensor_value_info("total_sequence_length", _INT32, []),
            ]
        else:
            mask = helper.make_tensor_value_info("attention_mask", _INT64, ["batch_size", _TOTAL])
            self.inputs += [
                *([] if window is not None else [mask]),
                helper.make_tensor_value_info(
                    "position_ids", _INT64, ["batch_size", "sequence_length"]
                ),
            ]
        self.outputs: list[onnx.ValueInfoProto] = []

    @staticmethod
    def _info(name: str, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, _F, ["batch_size", *dims])

    def op(self, kind: str, name: str, *ins: str, **attributes: Any) -> str:
        """Add a node, and return its output."""
        node = helper.make_node(kind, list(ins), [name], name=f"{name}/{kind}", **attributes)
        self.nodes.append(node)
        return name

    def ints(self, name: str, *numbers: int) -> str:
        """Return a constant of integers."""
        return self.held(name, np.array(numbers, np.int64))

    def held(self, name: str, array: np.ndarray) -> str:
        """Return an initializer, written once."""
        if all(tensor.name != name for tensor in self.weights):
            self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *dims: int) -> str:
        """Return a matrix of random numbers."""
        array = self.rng.standard_normal(dims) / self.size.hidden**0.5
        return self.held(name, array.astype(np.float32))

    def model(self) -> onnx.ModelProto:
        """Return the whole decoder."""
        size, op = self.size, self.op
        angles = np.outer(
            np.arange(size.positions), 10000.0 ** (-np.arange(size.head // 2) / size.head * 2)
        ).astype(np.float32)
        self.held("cos", np.cos(angles))
        self.held("sin", np.sin(angles))
        if not self.is_contrib:
            self._positions()
        x = "hidden_states"
        normed = self._normed("layers.0.norm1", x)
        for i in range(size.layers):
            p, after = f"layers.{i}", f"layers.{i + 1}.norm1"
            out = self._attention(p, i, normed)
            x, normed = self._added(f"{p}.residual1", f"{p}.norm2", x, out)
            up = op("MatMul", f"{p}.up", normed, self.weight(f"{p}.w", size.hidden, size.hidden))
            gate = op("Sigmoid", f"{p}.gate", up)
            x, normed = self._added(f"{p}.residual2", after, x, op("Mul", f"{p}.mlp", up, gate))
        x = op("Identity", "last_hidden_state", normed)
        self.outputs.insert(0, self._info(x, "sequence_length", size.hidden))
        graph = helper.make_graph(
            self.nodes, "decoder", self.inputs, self.outputs, initializer=self.weights
        )
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def _normed(self, name: str, x: str) -> str:
        scale = self.held(f"{name}.weight", np.ones(self.size.hidden, np.float32))
        if self.is_contrib:
            return self.op("SimplifiedLayerNormalization", name, x, scale, epsilon=1e-6)
        square = self.op("Pow", f"{name}.square", x, self.held("two", np.float32(2)))
        mean = self.op("ReduceMean", f"{name}.mean", square, self.ints("last", -1))
        mean = self.op("Add", f"{name}.eps", mean, self.held("epsilon", np.float32(1e-6)))
        root = self.op("Sqrt", f"{name}.root", mean)
        return self.op("Mul", name, self.op("Div", f"{name}.unit", x, root), scale)

    def _added(self, total: str, name: str, x: str, skip: str) -> tuple[str, str]:
        """Return a sum, and what it is normalized."""
        if not self.is_contrib:
            return total, self._normed(name, self.op("Add", total, x, skip))
        scale = self.held(f"{name}.weight", np.ones(self.size.hidden, np.float32))
        node = helper.make_node(
            "SkipSimplifiedLayerNormalization",
            [x, skip, scale],
            [name, "", "", total],
            name=f"{name}/SkipSimplifiedLayerNormalization",
            domain="com.microsoft",
            epsilon=1e-6,
        )
        self.nodes.append(node)
        return total, name

    def _positions(self) -> None:
        """Build the rotary tables and the mask that all layers share."""
        op = self.op
        for name in ("cos", "sin"):
            rows = op("Gather", f"{name}.rows", name, "position_ids")
            both = op("Concat", f"{name}.both", rows, rows, axis=-1)
            op("Unsqueeze", f"{name}.heads", both, self.ints("one", 1))
        length = op("Shape", "length", "position_ids", start=1, end=2)
        if self.window is None:
            total = op("Shape", "total", "attention_mask", start=1, end=2)
        else:
            past = op("Shape", "before", "past.0.key", start=2, end=3)
            past = op("Min", "kept.rows", past, self.ints("most", self.window - 1))
            total = op("Add", "total", past, length)
        zero, one = self.held("zero", np.int64(0)), self.held("unit", np.int64(1))
        end = op("Squeeze", "end", total)
        columns = op("Range", "columns", zero, end, one)
        begin = op("Squeeze", "begin", op("Sub", "past", total, length))
        rows = op("Range", "rows", begin, end, one)
        seen = op(
            "LessOrEqual", "seen", columns, op("Unsqueeze", "rows.up", rows, self.ints("one", 1))
        )
        if self.window is None:
            real = op("Cast", "real", "attention_mask", to=onnx.TensorProto.BOOL)
            real = op("Unsqueeze", "real.up", real, self.ints("heads_and_rows", 1, 2))
            both = op("And", "allowed", seen, real)
        else:
            up = op("Unsqueeze", "rows.down", rows, self.ints("one", 1))
            first = op("Sub", "rows.first", up, self.ints("window", self.window))
            both = op("And", "allowed", seen, op("Greater", "near", columns, first))
        least = self.held("least", np.float32(np.finfo(np.float32).min))
        op("Where", "mask", both, self.held("nothing", np.float32(0)), least)

    def _attention(self, p: str, layer: int, x: str) -> str:
        size, op = self.size, self.op
        width = size.kv_heads * size.head
        projected = {
            kind: op("MatMul", f"{p}.{kind}", x, self.weight(f"{p}.{kind}.w", size.hidden, wide))
            for kind, wide in (("q", size.hidden), ("k", width), ("v", width))
        }
        names = [(f"past.{layer}.{kind}", f"present.{layer}.{kind}") for kind in ("key", "value")]
        for past, present in names:
            dims = size.kv_heads, self.rows[0], size.head
            self.inputs.append(self._info(past, *dims))
            self.outputs.append(self._info(present, size.kv_heads, self.rows[1], size.head))
        if self.is_contrib:
            fed = ("seqlens_k", "total_sequence_length", "cos", "sin")
            node = helper.make_node(
                "GroupQueryAttention",
                [*projected.values(), *(past for past, _ in names), *fed],
                [f"{p}.context", *(present for _, present in names)],
                name=f"{p}/GroupQueryAttention",
                domain="com.microsoft",
                num_heads=size.heads,
                kv_num_heads=size.kv_heads,
                do_rotary=1,
            )
            self.nodes.append(node)
            context = f"{p}.context"
        else:
            context = self._decomposed(p, projected, names)
        return op("MatMul", f"{p}.o", context, self.weight(f"{p}.o.w", size.hidden, size.hidden))

    def _decomposed(self, p: str, projected: dict[str, str], names: list[tuple[str, str]]) -> str:
        size, op = self.size, self.op
        split = {}
        for kind, count in (("q", size.heads), ("k", size.kv_heads), ("v", size.kv_heads)):
            shape = self.ints(f"{kind}.shape", 0, 0, count, size.head)
            rows = op("Reshape", f"{p}.{kind}.split", projected[kind], shape)
            split[kind] = op("Transpose", f"{p}.{kind}.heads", rows, perm=[0, 2, 1, 3])
        for kind in ("q", "k"):
            split[kind] = self._rotated(f"{p}.{kind}", split[kind])
        whole = {}
        for kind, (past, present) in zip(("k", "v"), names, strict=True):
            grown = self._grown(f"{p}.{kind}", past, present, split[kind])
            whole[kind] = self._repeated(f"{p}.{kind}", grown)
        root = self.held("root", np.float32(size.head**-0.25))
        queries = op("Mul", f"{p}.q.scaled", split["q"], root)
        keys = op("Mul", f"{p}.k.scaled", self._turned(f"{p}.k", whole["k"]), root)
        scores = op("MatMul", f"{p}.scores", queries, keys)
        masked = op("Add", f"{p}.masked", scores, "mask")
        weights = op("Softmax", f"{p}.weights", masked, axis=-1)
        context = op("MatMul", f"{p}.attended", weights, whole["v"])
        turned = op("Transpose", f"{p}.turned", context, perm=[0, 2, 1, 3])
        return op("Reshape", f"{p}.context", turned, self.ints("merged", 0, 0, size.hidden))

    def _grown(self, name: str, past: str, present: str, new: str) -> str:
        """Return the rows of the past and new ones, and let those that are kept be the present."""
        if self.window is None:
            return self.op("Concat", present, past, new, axis=2)
        last, end = self.ints("kept", 1 - self.window), self.ints("far", 2**63 - 1)
        cut = (last, end, self.ints("two_", 2))
        kept = self.op("Slice", f"{name}.kept", past, *cut)
        every = self.op("Concat", f"{name}.every", kept, new, axis=2)
        self.op("Slice", present, every, *cut)
        return every

    def _turned(self, name: str, x: str) -> str:
        """Return keys (B, H, S, D) as (B, H, D, S)."""
        op = self.op
        if not self.turns_flat:
            return op("Transpose", f"{name}.turned", x, perm=[0, 1, 3, 2])
        sizes, last = op("Shape", f"{name}.shape", x), self.ints("last", -1)
        far, least = self.ints("far", 2**63 - 1), self.ints("below", -(2**63))
        before = self.ints("last_but_one", -2)
        front = op("Slice", f"{name}.heads.sizes", sizes, least, before)
        rows = op("Slice", f"{name}.rows.size", sizes, before, last)
        width = op("Slice", f"{name}.width.size", sizes, last, far)
        flat = op("Concat", f"{name}.flat.shape", last, rows, width, axis=0)
        flat = op("Reshape", f"{name}.flat", x, flat)
        turned = op("Transpose", f"{name}.flat.turned", flat, perm=[0, 2, 1])
        whole = op("Concat", f"{name}.turned.shape", front, width, rows, axis=0)
        return op("Reshape", f"{name}.turned", turned, whole)

    def _rotated(self, name: str, x: str) -> str:
        op, half = self.op, self.size.head // 2
        last = self.ints("last", -1)
        low = op("Slice", f"{name}.low", x, self.ints("from", 0), self.ints("half", half), last)
        end = self.ints("far", 2**63 - 1)
        high = op("Slice", f"{name}.high", x, self.ints("half", half), end, last)
        turned = op("Concat", f"{name}.swapped", op("Neg", f"{name}.neg", high), low, axis=-1)
        straight = op("Mul", f"{name}.cos", x, "cos.heads")
        return op("Add", f"{name}.rotated", straight, op("Mul", f"{name}.sin", turned, "sin.heads"))

    def _repeated(self, name: str, x: str) -> str:
        size, op = self.size, self.op
        group = size.heads // size.kv_heads
        wide = op("Unsqueeze", f"{name}.wide", x, self.ints("two_", 2))
        sizes = op("Shape", f"{name}.sizes", x)
        front = op("Slice", f"{name}.front", sizes, self.ints("from", 0), self.ints("two_", 2))
        back = op("Slice", f"{name}.back", sizes, self.ints("two_", 2), self.ints("four", 4))
        target = op("Concat", f"{name}.target", front, self.ints("group", group), back, axis=0)
        many = op("Expand", f"{name}.many", wide, target)
        return op("Reshape", f"{name}.all", many, self.ints("joined", 0, size.heads, -1, size.head))
