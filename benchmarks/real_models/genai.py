"""Decoders as onnxruntime-genai's builder writes them, with operators of onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.real_models.configuration import BLOCK
from benchmarks.real_models.data import NUMPY, ONNX, DataFile
from benchmarks.real_models.genai_configuration import Genai
from benchmarks.real_models.linear import Linear, nibbles, normal
from benchmarks.real_models.writer import DATA, MODEL

__all__ = ["write_genai"]

_MICROSOFT = "com.microsoft"
_EPSILON = 1e-6


def write_genai(model: Genai, directory: Path, *, sparse: bool = False, seed: int = 0) -> Path:
    """Write a decoder whose caches grow in GroupQueryAttention; return the path of the model.

    Args:
        model: What it is.
        directory: Where `model.onnx` and `model.onnx.data` are written; it is made.
        sparse: Whether the matrices are holes in the file, zeros that take no disk.
        seed: Of the weights; the same one gives the same bytes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    data = DataFile(directory / DATA, sparse=sparse, seed=seed)
    try:
        proto = _Builder(model, data).model()
    finally:
        data.close()
    path = directory / MODEL
    onnx.save(proto, path)
    return path


class _Builder:
    """The graph while it grows."""

    def __init__(self, model: Genai, data: DataFile) -> None:
        self._m, self._c, self._data = model, model.sizes, data
        self._nodes: list[onnx.NodeProto] = []
        self._linear = Linear(self._c, data, self._op)
        self._element = ONNX[self._c.dtype]

    def model(self) -> onnx.ModelProto:
        c, value = self._c, helper.make_tensor_value_info
        tokens: list[str | int] = ["batch_size", "sequence_length"]
        total = "total_sequence_length"
        inputs = [
            value("input_ids", TensorProto.INT64, tokens),
            value("attention_mask", TensorProto.INT64, ["batch_size", total]),
        ]
        outputs = [value("logits", self._element, [*tokens, c.vocabulary])]
        for i in range(c.layers):
            for kind in ("key", "value"):
                past, present = (
                    ["batch_size", c.kv_heads, rows, c.head_size]
                    for rows in ("past_sequence_length", total)
                )
                inputs.append(value(f"past_key_values.{i}.{kind}", self._element, past))
                outputs.append(value(f"present.{i}.{kind}", self._element, present))
        self._body()
        graph = helper.make_graph(
            self._nodes, "main_graph", inputs, outputs, initializer=self._data.tensors
        )
        imports = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(
            graph, opset_imports=imports, ir_version=10, producer_name="onnxruntime-genai"
        )

    def _op(self, kind: str, output: str, *inputs: str, domain: str = "", **given: Any) -> str:
        self._several(kind, [output], *inputs, domain=domain, **given)
        return output

    def _several(
        self, kind: str, outputs: list[str], *inputs: str, domain: str = "", **given: Any
    ) -> None:
        name = f"{outputs[0]}_node"
        node = helper.make_node(kind, inputs, outputs, name=name, domain=domain, **given)
        self._nodes.append(node)

    def _body(self) -> None:
        c = self._c
        lengths = self._lengths()
        x = self._embedded()
        normed = self._op(
            "SimplifiedLayerNormalization",
            "model.layers.0.input_layernorm.output",
            x,
            self._norm_weight("model.layers.0.input_layernorm", c.hidden),
            axis=-1,
            epsilon=_EPSILON,
            stash_type=1,
        )
        for i in range(c.layers):
            p = f"model.layers.{i}"
            attended = self._attention(i, normed, lengths)
            normed, x = self._skip(f"{p}.post_attention_layernorm", x, attended)
            added = self._experts(f"{p}.moe", normed) if self._m.experts else self._mlp(p, normed)
            is_last = i == c.layers - 1
            name = f"model.layers.{i + 1}.{'final_norm' if is_last else 'input'}_layernorm"
            normed, x = self._skip(name, x, added, is_last=is_last)
        self._product("lm_head", normed, c.hidden, c.vocabulary)
        self._nodes[-1].output[0] = "logits"

    def _lengths(self) -> tuple[str, str]:
        one = self._data.put("constants.one", np.array([1], np.int64))
        index = self._data.put("constants.index", np.array(1, np.int64))
        p = "attn_mask_reformat"
        total = self._op("ReduceSum", f"{p}.ReduceSum", "attention_mask", one, keepdims=0)
        last = self._op("Sub", f"{p}.Sub", total, one)
        shape = self._op("Shape", f"{p}.Shape", "attention_mask")
        columns = self._op("Gather", f"{p}.Gather", shape, index, axis=0)
        return (
            self._op("Cast", f"{p}.Sub.Cast", last, to=TensorProto.INT32),
            self._op("Cast", f"{p}.Gather.Cast", columns, to=TensorProto.INT32),
        )

    def _embedded(self) -> str:
        c, name = self._c, "model.embed_tokens"
        if c.quantisation == "none":
            return self._op(
                "Gather",
                f"{name}.Gather",
                self._linear.matrix(f"{name}.weight", c.vocabulary, c.hidden),
                "input_ids",
            )
        codes = self._codes(f"{name}.weight_Q4", c.vocabulary, c.hidden)
        scales = self._linear.scales(f"{name}.weight_scales", c.vocabulary, c.hidden // BLOCK)
        return self._op(
            "GatherBlockQuantized",
            f"{name}.GatherBlockQuantized",
            codes,
            "input_ids",
            scales,
            domain=_MICROSOFT,
            bits=4,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def _codes(self, name: str, *dims: int) -> str:
        """Store codes of 4 bits, of which a byte holds two along the last dimension."""
        packed = (*dims[:-1], dims[-1] // 2)
        count = int(np.prod(packed))
        return self._data.draw(name, TensorProto.UINT8, packed, count, nibbles(unsigned=True))

    def _product(self, name: str, x: str, k: int, n: int) -> str:
        """Multiply by a matrix (K, N), as the builder stores it: not turned."""
        if self._c.quantisation == "matmulnbits":
            return self._linear(name, x, k, n, 1.0)
        weight = self._linear.matrix(f"{name}.MatMul.weight", k, n)
        return self._op("MatMul", f"{name}.MatMul", x, weight)

    def _norm_weight(self, name: str, width: int) -> str:
        draw = normal(0.1, self._c.dtype, mean=1.0)
        return self._data.draw(f"{name}.weight", self._element, (width,), width, draw)

    def _skip(self, name: str, x: str, added: str, *, is_last: bool = False) -> tuple[str, str]:
        outputs = [f"{name}.output", "", "", f"{name}.sum"]
        weight = self._norm_weight(name, self._c.hidden)
        self._several(
            "SkipSimplifiedLayerNormalization",
            outputs[:1] if is_last else outputs,
            x,
            added,
            weight,
            domain=_MICROSOFT,
            epsilon=_EPSILON,
        )
        return outputs[0], outputs[3]

    def _attention(self, layer: int, x: str, lengths: tuple[str, str]) -> str:
        c, p = self._c, f"model.layers.{layer}.attn"
        widths = {"q": c.heads * c.head_size, "k": c.kv_width, "v": c.kv_width}
        if self._m.is_packed:
            projected = [self._product(f"{p}.qkv_proj", x, c.hidden, sum(widths.values())), "", ""]
        else:
            projected = [
                self._product(f"{p}.{k}_proj", x, c.hidden, width) for k, width in widths.items()
            ]
        if self._m.is_normed:
            projected[:2] = [
                self._normed_heads(f"{p}.{k}_norm", rows, widths[k])
                for k, rows in zip("qk", projected, strict=False)
            ]
        pasts = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        outputs = [f"{p}.GroupQueryAttention", *(f"present.{layer}.{k}" for k in ("key", "value"))]
        self._several(
            "GroupQueryAttention",
            outputs,
            *projected,
            *pasts,
            *lengths,
            *self._tables(),
            "",
            "",
            "",
            domain=_MICROSOFT,
            num_heads=c.heads,
            kv_num_heads=c.kv_heads,
            scale=float(c.head_size**-0.5),
            local_window_size=self._m.window if self._m.window and not layer % 2 else -1,
            softcap=self._m.softcap,
            do_rotary=1,
            rotary_interleaved=0,
        )
        return self._product(f"{p}.o_proj", outputs[0], widths["q"], c.hidden)

    def _normed_heads(self, name: str, rows: str, width: int) -> str:
        head = self._c.head_size
        shapes = [self._data.put(f"{name}.{n}", np.array([0, -1, n])) for n in (head, width)]
        split = self._op("Reshape", f"{name}.Reshape_1", rows, shapes[0])
        normed = self._op(
            "SimplifiedLayerNormalization",
            f"{name}.normed",
            split,
            self._norm_weight(name, head),
            axis=-1,
            epsilon=_EPSILON,
            stash_type=1,
        )
        return self._op("Reshape", f"{name}.Reshape_2", normed, shapes[1])

    def _tables(self) -> tuple[str, str]:
        names = ("cos_cache", "sin_cache")
        if not any(tensor.name == names[0] for tensor in self._data.tensors):
            half = (self._m.turned or self._c.head_size) // 2
            steps = 10000.0 ** (-np.arange(half) / half)
            angles = np.outer(np.arange(self._c.capacity), steps).astype(np.float32)
            for name, function in zip(names, (np.cos, np.sin), strict=True):
                self._data.put(name, function(angles).astype(NUMPY[self._c.dtype]))
        return names

    def _mlp(self, name: str, x: str) -> str:
        c, p = self._c, f"{name}.mlp"
        gate = self._product(f"{p}.gate_proj", x, c.hidden, c.intermediate)
        up = self._product(f"{p}.up_proj", x, c.hidden, c.intermediate)
        sigmoid = self._op("Sigmoid", f"{p}.act_fn.Sigmoid", gate)
        gate = self._op("Mul", f"{p}.act_fn.Mul", gate, sigmoid)
        gated = self._op("Mul", f"{p}.Mul", gate, up)
        return self._product(f"{p}.down_proj", gated, c.intermediate, c.hidden)

    def _experts(self, name: str, x: str) -> str:
        """Add a mixture of gated experts, gate and up interleaved in one product."""
        c, experts = self._c, self._m.experts
        shape = self._data.put(f"{name}.router_shape", np.array([-1, experts], np.int64))
        router = self._product(f"{name}.router", x, c.hidden, experts)
        router = self._op("Reshape", f"{name}.router.Reshape", router, shape)
        products = {"fc1": (2 * c.intermediate, c.hidden), "fc2": (c.hidden, c.intermediate)}
        given = {
            "k": self._m.chosen,
            "activation_type": "swiglu",
            "activation_alpha": 1.0,
            "activation_beta": 0.0,
            "swiglu_fusion": 1,
            "normalize_routing_weights": 1,
        }
        inputs = [x, router]
        if c.quantisation == "none":
            for which, (n, k) in products.items():
                draw = normal(c.std, c.dtype)
                label = f"{name}.{which}.weight"
                dims = (experts, n, k)
                inputs.append(self._data.draw(label, self._element, dims, experts * n * k, draw))
                inputs.append("")
            return self._op("MoE", f"{name}.MoE", *inputs[:-1], domain=_MICROSOFT, **given)
        for which, (n, k) in products.items():
            inputs.append(self._codes(f"{name}.{which}.qweight", experts, n, k))
            inputs.append(self._linear.scales(f"{name}.{which}.scales", experts, n, k // BLOCK))
            inputs.append("")
        return self._op(
            "QMoE",
            f"{name}.QMoE",
            *inputs[:-1],
            domain=_MICROSOFT,
            expert_weight_bits=4,
            block_size=BLOCK,
            **given,
        )
