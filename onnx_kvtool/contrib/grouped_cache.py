"""The caches of GroupQueryAttention: written in place or grown, of numbers or of codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.grouped_call import Call
from onnx_kvtool.contrib.rule import Builder, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["Cache", "cache_of"]

_INT8, _FLOAT = ir.DataType.INT8, ir.DataType.FLOAT


@dataclass(frozen=True, slots=True)
class Cache:
    """What is written, and what attention reads of it.

    Attributes:
        present: The buffer: (B, KV, rows, D).
        numbers: What it stands for, of the type of the query.
    """

    present: ir.Value
    numbers: ir.Value


def cache_of(view: NodeView, em: Emitter, call: Call, name: str, new: ir.Value) -> Cache:
    """Return the cache of keys or values after new rows are written.

    Args:
        view: The node.
        em: Where to build.
        call: Where the rows go.
        name: `key` or `value`.
        new: (B, KV, L, D).

    Raises:
        Refusal: For codes of another width than 8 bits, or without a past or a scale.
    """
    past, letter = view.input(f"past_{name}"), name[0]
    if view.attribute(f"{letter}_quant_type") == "NONE":
        refuse_input(view, f"{letter}_scale")
        _demand_type(view, past, new.dtype)
        present = _written(view, em, call, name, new)
        return Cache(present, present)
    refuse_value(view, f"{letter}_quant_type", "PER_TENSOR", "PER_CHANNEL")
    refuse_value(view, "kv_cache_bit_width", None, 0, 8)
    given = view.input(f"{letter}_scale")
    if given is None or past is None:
        raise Refusal(
            "contrib-form",
            f"`GroupQueryAttention` has a quantized cache without `past_{name}` or "
            f"`{letter}_scale`",
        )
    _demand_type(view, past, _INT8)
    is_one = view.attribute(f"{letter}_quant_type") == "PER_TENSOR"
    shape = [1, 1, 1, 1] if is_one else [1, view.integer("kv_num_heads"), 1, -1]
    op = Builder(em, _FLOAT)
    scale = op("Reshape", given, em.constant(shape, "shape"), hint="scale")
    least, most = (em.constant(np.array(n, np.float32), "limit") for n in (-128, 127))
    codes = op("Round", op("Div", cast(em, new, _FLOAT), scale))
    codes = op("Min", op("Max", codes, least), most, hint="codes")
    present = _written(view, em, call, name, cast(em, codes, _INT8))
    numbers = op("Mul", cast(em, present, _FLOAT), scale, hint="numbers")
    return Cache(present, cast(em, numbers, new.dtype or ir.DataType.UNDEFINED))


def _demand_type(view: NodeView, past: ir.Value | None, dtype: ir.DataType | None) -> None:
    if past is not None and past.dtype != dtype:
        raise Refusal(
            "contrib-form",
            f"`{past.name}` of `GroupQueryAttention` is of type {past.dtype}, expected {dtype}: "
            "no other quantized cache has a standard form",
        )


def _written(view: NodeView, em: Emitter, call: Call, name: str, new: ir.Value) -> ir.Value:
    """Return the present buffer: (B, KV, rows, D)."""
    past = view.input(f"past_{name}")
    if past is None:
        return new
    dtype = past.dtype or ir.DataType.UNDEFINED
    index = 1 if name == "key" else 2
    present = view.node.outputs[index] if index < len(view.node.outputs) else None
    before, after = dims_of(past), dims_of(present)
    if before is None or after is None or before[2] is None or before[2] != after[2]:
        past = _grown(em, call, past, None if before is None else before[2])
    attributes = {"axis": 2}
    inputs = (past, new, call.start)
    return em.op(
        "TensorScatter", *inputs, attributes=attributes, dtype=dtype, hint=f"present_{name}"
    )


def _grown(em: Emitter, call: Call, past: ir.Value, rows: object) -> ir.Value:
    """Return the past with rows of zeros up to `total_sequence_length`, if that is more."""
    dim = rows if isinstance(rows, int | str) else None
    zero, one = em.constant([0], "zero"), em.constant([1], "one")

    def build() -> ir.Value:
        count = em.op("Reshape", size(em, dim, past, 2), one)
        more = em.op("Max", em.op("Sub", call.total, count), zero)
        front = em.constant([0] * 6, "zeros")
        return em.op("Concat", front, more, zero, attributes={"axis": 0}, hint="pads")

    pads = em.once(("rows to add", call.total, dim if dim is not None else past), build)
    return em.op("Pad", past, pads, dtype=past.dtype or ir.DataType.UNDEFINED, hint="grown")
