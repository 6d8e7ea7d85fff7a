"""Writing a decoder: the graph, in the pattern of `fixtures/models/native/llama_static.onnx`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.real_models.configuration import Configuration
from benchmarks.real_models.data import NUMPY, ONNX, DataFile
from benchmarks.real_models.linear import Linear, normal

__all__ = ["DATA", "MODEL", "write"]

MODEL, DATA = "model.onnx", "model.onnx.data"
"""Names of the files that are written."""

_MICROSOFT = "com.microsoft"
_EPSILON = 1e-6


def write(
    configuration: Configuration, directory: Path, *, sparse: bool = False, seed: int = 0
) -> Path:
    """Write a decoder at opset 24 into a directory, which is made; return the path of the model.

    Tokens go in and logits come out, `(B, L, vocabulary)`; caches are `(B, S, KV * D)` and updated
    by TensorScatter at `write_indices`; `nonpad_kv_seqlen` says how many rows are valid. The data
    is never in memory as a whole.

    Args:
        configuration: Its dimensions.
        directory: Where `model.onnx` and `model.onnx.data` are written.
        sparse: Whether the matrices are holes in the file, zeros that take no disk.
        seed: Of the weights; the same one gives the same bytes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    data = DataFile(directory / DATA, sparse=sparse, seed=seed)
    try:
        model = _Decoder(configuration, data).model()
    finally:
        data.close()
    path = directory / MODEL
    onnx.save(model, path)
    return path


class _Decoder:
    """The graph while it grows."""

    def __init__(self, configuration: Configuration, data: DataFile) -> None:
        self._c, self._data = configuration, data
        self._nodes: list[onnx.NodeProto] = []
        self._linear = Linear(configuration, data, self._op)
        self._element = ONNX[configuration.dtype]
        width = configuration.hidden**0.5 * configuration.std
        self._magnitudes = {"normed": 1.0, "values": width, "gated": max(width, width * width)}

    def model(self) -> onnx.ModelProto:
        c = self._c
        cache = [c.batch, c.capacity, c.kv_width]
        stored = {"plain": self._element, "int8": TensorProto.INT8}.get(
            c.caches, TensorProto.FLOAT8E4M3FN
        )
        tokens = [c.batch, "sequence_len"]
        names = [f"{k}_cache.{i}" for i in range(c.layers) for k in ("key", "value")]
        value = helper.make_tensor_value_info
        inputs = [value(name, TensorProto.INT64, tokens) for name in ("input_ids", "position_ids")]
        inputs += [value(name, stored, cache) for name in names]
        for name in ("write_indices", "nonpad_kv_seqlen"):
            inputs.append(value(name, TensorProto.INT64, [c.batch]))
        self._body()
        outputs = [value("logits", self._element, [*tokens, c.vocabulary])]
        outputs += [value(f"updated_{name}", stored, cache) for name in names]
        graph = helper.make_graph(
            self._nodes, "main_graph", inputs, outputs, initializer=self._data.tensors
        )
        imports = [helper.make_opsetid("", 24), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(
            graph,
            opset_imports=imports,
            functions=[_skip_normalization()],
            ir_version=11,
            producer_name="kvtool benchmarks",
        )

    def _op(self, kind: str, output: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        node = helper.make_node(
            kind, inputs, [output], name=f"{output}_node", domain=domain, **attributes
        )
        self._nodes.append(node)
        return output

    def _body(self) -> None:
        c = self._c
        embedding = self._linear.matrix("model.embed_tokens.weight", c.vocabulary, c.hidden)
        x = self._op("Gather", "model.embed_tokens.Gather", embedding, "input_ids")
        angles = self._angles()
        normed = self._norm("model.layers.0.input_layernorm", x)
        for i in range(c.layers):
            p = f"model.layers.{i}"
            attended = self._attention(i, normed, angles)
            normed, x = self._skip(f"{p}.post_attention_layernorm", x, attended)
            last = i == c.layers - 1
            name = "model.norm" if last else f"model.layers.{i + 1}.input_layernorm"
            normed, x = self._skip(name, x, self._mlp(f"{p}.mlp", normed))
        if c.tied and c.quantisation == "none":
            logits = self._linear.plain("lm_head", normed, embedding)
        else:
            logits = self._linear("lm_head", normed, c.hidden, c.vocabulary, 1.0)
        self._nodes[-1].output[0] = "logits" if logits else ""

    def _angles(self) -> tuple[str, str]:
        """Return cosines and sines of the positions, `(B, L, D / 2)`."""
        c = self._c
        half = c.head_size // 2
        steps = 10000.0 ** (-np.arange(half) / half)
        angles = np.outer(np.arange(c.capacity), steps).astype(np.float32)
        found = []
        for kind, function in (("cos", np.cos), ("sin", np.sin)):
            table = function(angles).astype(NUMPY[c.dtype])
            name = self._data.put(f"model.rotary_emb.{kind}_cache", table)
            found.append(self._op("Gather", f"model.rotary_emb.{kind}", name, "position_ids"))
        return found[0], found[1]

    def _norm_weight(self, name: str) -> str:
        hidden = self._c.hidden
        draw = normal(0.1, self._c.dtype, mean=1.0)
        return self._data.draw(f"{name}.weight", self._element, (hidden,), hidden, draw)

    def _norm(self, name: str, x: str) -> str:
        return self._op(
            "RMSNormalization",
            f"{name}.RMSNormalization",
            x,
            self._norm_weight(name),
            axis=-1,
            epsilon=_EPSILON,
        )

    def _skip(self, name: str, x: str, added: str) -> tuple[str, str]:
        """Return the normalised sum and the sum."""
        weight = self._norm_weight(name)
        outputs = [f"{name}.{what}" for what in ("RMSNormalization", "mean", "inv_std_var", "sum")]
        kind = "SkipSimplifiedLayerNormalization"
        node = helper.make_node(
            kind,
            [x, added, weight],
            outputs,
            name=f"{name}_node",
            domain=_MICROSOFT,
            epsilon=_EPSILON,
        )
        self._nodes.append(node)
        return outputs[0], outputs[3]

    def _attention(self, layer: int, x: str, angles: tuple[str, str]) -> str:
        c = self._c
        p = f"model.layers.{layer}.self_attn"
        attended = c.heads * c.head_size
        query = self._projected(f"{p}.q_proj", x, attended)
        key = self._projected(f"{p}.k_proj", x, c.kv_width)
        value = self._projected(f"{p}.v_proj", x, c.kv_width)
        query = self._rotated(f"{p}.query", query, angles, c.heads)
        key = self._rotated(f"{p}.key", key, angles, c.kv_heads)
        output = self._op(
            "Attention",
            f"{p}.Attention",
            query,
            self._cached(f"{p}.key", f"key_cache.{layer}", key),
            self._cached(f"{p}.value", f"value_cache.{layer}", value),
            "",
            "",
            "",
            "nonpad_kv_seqlen",
            softcap=0.0,
            kv_num_heads=c.kv_heads,
            q_num_heads=c.heads,
            scale=float(c.head_size**-0.5),
            is_causal=1,
        )
        return self._linear(f"{p}.o_proj", output, attended, c.hidden, self._magnitudes["values"])

    def _projected(self, name: str, x: str, width: int) -> str:
        product = self._linear(name, x, self._c.hidden, width, self._magnitudes["normed"])
        if not self._c.bias:
            return product
        draw = normal(self._c.std, self._c.dtype)
        bias = self._data.draw(f"{name}.bias", self._element, (width,), width, draw)
        return self._op("Add", f"{name}.Add", product, bias)

    def _rotated(self, name: str, x: str, angles: tuple[str, str], heads: int) -> str:
        return self._op(
            "RotaryEmbedding",
            f"{name}.RotaryEmbedding",
            x,
            *angles,
            num_heads=heads,
            rotary_embedding_dim=0,
            interleaved=0,
        )

    def _cached(self, name: str, cache: str, rows: str) -> str:
        """Write the rows into a cache; return all of it in the type of the model."""
        inputs: tuple[str, ...] = ()
        if self._c.caches != "plain":
            int8 = self._c.caches == "int8"
            zero = np.zeros((), np.int8 if int8 else ml_dtypes.float8_e4m3fn)
            # Four standard deviations fill int8; float8 keeps three bits at any magnitude.
            scale = self._magnitudes["values"] / (32 if int8 else 8)
            inputs = (
                self._linear.scale(f"{name}.scale", scale),
                self._data.put(f"{name}.zero_point", zero),
            )
            rows = self._op("QuantizeLinear", f"{name}.quantised", rows, *inputs)
        updated = self._op(
            "TensorScatter", f"updated_{cache}", cache, rows, "write_indices", axis=1
        )
        if not inputs:
            return updated
        return self._op("DequantizeLinear", f"{name}.dequantised", updated, *inputs)

    def _mlp(self, name: str, x: str) -> str:
        c = self._c
        gate, up = (
            self._linear(f"{name}.{which}_proj", x, c.hidden, c.intermediate, 1.0)
            for which in ("gate", "up")
        )
        sigmoid = self._op("Sigmoid", f"{name}.Sigmoid", gate)
        gate = self._op("Mul", f"{name}.gate", gate, sigmoid)
        gated = self._op("Mul", f"{name}.gated", gate, up)
        magnitude = self._magnitudes["gated"]
        return self._linear(f"{name}.down_proj", gated, c.intermediate, c.hidden, magnitude)


def _skip_normalization() -> onnx.FunctionProto:
    """Return the function body of SkipSimplifiedLayerNormalization, as builders put it along."""
    normalized = helper.make_node(
        "RMSNormalization", ["add_out", "weight"], ["norm_out"], name="RMSNormalization_node_1"
    )
    normalized.attribute.append(helper.make_attribute_ref("epsilon", onnx.AttributeProto.FLOAT))
    normalized.attribute[0].ref_attr_name = "epsilon"
    nodes = [
        helper.make_node("Add", ["input", "skip"], ["add_out"], name="Add_node_0"),
        normalized,
        *(
            helper.make_node("Constant", [], [name], name=f"Constant_{name}", value_floats=[0.0])
            for name in ("mean", "inv_std_var")
        ),
    ]
    return helper.make_function(
        _MICROSOFT,
        "SkipSimplifiedLayerNormalization",
        ["input", "skip", "weight"],
        ["norm_out", "mean", "inv_std_var", "add_out"],
        nodes,
        [helper.make_opsetid("", 24)],
        attributes=["epsilon"],
    )
