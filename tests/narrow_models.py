"""The decoders of the fixtures in float16 and bfloat16, with weights of any size, and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from tests.runtime.recorded import NATIVE

NUMBERS = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}
DTYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

Fault = Callable[[onnx.ModelProto], None]


def narrow(message: onnx.ModelProto, dtype: str, std: float | None = None, seed: int = 0) -> None:
    """Make a float32 model without bodies one of `dtype`; matrices are drawn unless `std` is None.

    Tables of sines and cosines keep their values.
    """
    rng = np.random.default_rng(seed)
    for constant in _nodes(message, "Constant"):
        given = constant.attribute[0]
        if given.name in ("value_float", "value_floats"):  # which are float32
            values = np.array(helper.get_attribute_value(given), DTYPES[dtype])
            number = ir.serde.serialize_tensor(ir.tensor(values))
            given.CopyFrom(helper.make_attribute("value", number))
    constants = [node.attribute[0].t for node in _nodes(message, "Constant")]
    for tensor in (*message.graph.initializer, *constants):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor)
            if std is not None and values.ndim == 2 and "rotary" not in tensor.name:
                values = rng.normal(scale=std, size=values.shape)
            narrowed = ir.tensor(values.astype(DTYPES[dtype]), name=tensor.name)
            tensor.CopyFrom(ir.serde.serialize_tensor(narrowed))
    graph = message.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = NUMBERS[dtype]


def decoder(
    dtype: str, std: float | None = None, seed: int = 0, *faults: Fault, name: str = "llama_static"
) -> ir.Model:
    """Return a fixture in another type, with `faults` planted."""
    message = onnx.load(NATIVE / f"{name}.onnx")
    narrow(message, dtype, std, seed)
    for plant in faults:
        plant(message)
    return ir.from_proto(message)


def _nodes(message: onnx.ModelProto, op_type: str) -> list[onnx.NodeProto]:
    return [node for node in message.graph.node if node.op_type == op_type]


def _set(node: onnx.NodeProto, name: str, value: object) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _weight(message: onnx.ModelProto, part: str) -> onnx.TensorProto:
    return next(tensor for tensor in message.graph.initializer if part in tensor.name)


def _edit(tensor: onnx.TensorProto, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    values = ir.serde.deserialize_tensor(tensor).numpy()
    edited = edit(values.astype(np.float32)).astype(values.dtype)
    tensor.CopyFrom(ir.serde.serialize_tensor(ir.tensor(edited, name=tensor.name)))


def _insert(message: onnx.ModelProto, index: int, *nodes: onnx.NodeProto) -> None:
    listed = [*message.graph.node]
    del message.graph.node[:]
    message.graph.node.extend([*listed[:index], *nodes, *listed[index:]])


def _one_more(message: onnx.ModelProto, name: str) -> None:
    """Let all nodes that read the input `name` read it plus one."""
    for node in message.graph.node:
        for position, value in enumerate(node.input):
            if value == name:
                node.input[position] = "more"
    one = helper.make_node("Constant", [], ["one"], value_ints=[1])
    _insert(message, 0, one, helper.make_node("Add", [name, "one"], ["more"]))


def softcap(cap: float) -> Fault:
    """Let all Attention have a softcap."""

    def plant(message: onnx.ModelProto) -> None:
        for node in _nodes(message, "Attention"):
            _set(node, "softcap", cap)

    return plant


def epsilon(value: float) -> Fault:
    """Let all RMS normalizations have an epsilon."""

    def plant(message: onnx.ModelProto) -> None:
        for op_type in ("RMSNormalization", "SkipSimplifiedLayerNormalization"):
            for node in _nodes(message, op_type):
                _set(node, "epsilon", value)

    return plant


def _wrong_scale(message: onnx.ModelProto) -> None:
    _set(_nodes(message, "Attention")[1], "scale", 0.26)


def _mask_off_by_one(message: onnx.ModelProto) -> None:
    _one_more(message, "nonpad_kv_seqlen")


def _not_causal(message: onnx.ModelProto) -> None:
    _set(_nodes(message, "Attention")[0], "is_causal", 0)


def _sign_of_the_sines(message: onnx.ModelProto) -> None:
    _edit(_weight(message, "sin_cache"), np.negative)


def _position_off_by_one(message: onnx.ModelProto) -> None:
    _one_more(message, "position_ids")


def _other_halves(message: onnx.ModelProto) -> None:
    for node in _nodes(message, "RotaryEmbedding"):
        _set(node, "interleaved", 1)


def _head_grouping(message: onnx.ModelProto) -> None:
    """Let query heads 0, 2 share a key head, and 1, 3, where 0, 1 and 2, 3 should."""
    _edit(
        _weight(message, "layers.0.self_attn.q_proj"),
        lambda w: w.reshape(4, 16, 64)[[0, 2, 1, 3]].reshape(64, 64),
    )
    _edit(
        _weight(message, "layers.0.self_attn.o_proj"),
        lambda w: w.reshape(64, 4, 16)[:, [0, 2, 1, 3]].reshape(64, 64),
    )


def _layer_input_swapped(message: onnx.ModelProto) -> None:
    """Let the second layer project keys from what the first projected them from."""
    first, second = (node for node in _nodes(message, "MatMul") if "k_proj" in node.output[0])
    second.input[0] = first.input[0]


def _gates_swapped(message: onnx.ModelProto) -> None:
    up, gate = (_weight(message, f"layers.0.mlp.{part}_proj") for part in ("up", "gate"))
    up.name, gate.name = gate.name, up.name


def _written_too_late(message: onnx.ModelProto) -> None:
    _one_more(message, "write_indices")


def behind_logits(*nodes: tuple[str, float], dtype: str) -> Fault:
    """Compute with the logits and numbers of the type: each an operator and its second operand."""

    def plant(message: onnx.ModelProto) -> None:
        message.graph.node[-1].output[0] = value = "before"
        for index, (op_type, number) in enumerate(nodes):
            constant = ir.tensor(np.array(number, DTYPES[dtype]), name=f"number.{index}")
            message.graph.initializer.append(ir.serde.serialize_tensor(constant))
            result = "logits" if index == len(nodes) - 1 else f"behind.{index}"
            message.graph.node.append(
                helper.make_node(op_type, [value, f"number.{index}"], [result])
            )
            value = result

    return plant


FAULTS: dict[str, Fault] = {
    "the scale of one layer is 4 % too large": _wrong_scale,
    "a row too many is seen": _mask_off_by_one,
    "one layer is not causal": _not_causal,
    "the sign of the sines is flipped": _sign_of_the_sines,
    "positions are off by one": _position_off_by_one,
    "rotary halves are taken to be interleaved": _other_halves,
    "query heads share the wrong key heads": _head_grouping,
    "keys of the second layer are made from the input of the first": _layer_input_swapped,
    "gate and up are swapped": _gates_swapped,
    "rows are written one too late": _written_too_late,
}
