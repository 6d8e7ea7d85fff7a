"""Operators of onnxruntime on codes, and on weights in blocks, in their standard form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from tests.grids import search
from tests.rewrite.contrib.single import OPSETS, Array, demand_same, normal, refusal, standard
from tests.runtime.kernels.contrib.node import needs_onnxruntime, node_model, ours

pytestmark = needs_onnxruntime

CODES = st.sampled_from([np.uint8, np.int8])
some = search(60)


def codes(*shape: int, dtype: Any = np.uint8, seed: int = 3) -> Array:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def number(value: float) -> Array:
    return np.array(value, np.float32)


def point(dtype: Any, given_: bool = True) -> Array | None:
    return np.array(117 if dtype == np.uint8 else -5, dtype) if given_ else None


@some
@given(opset=OPSETS, dtype=CODES, op=st.sampled_from(["QLinearAdd", "QLinearMul"]))
def test_of_two(opset: int, dtype: Any, op: str) -> None:
    inputs = {
        "A": codes(2, 5, 7, dtype=dtype),
        "A_scale": number(0.02),
        "A_zero_point": point(dtype),
        "B": codes(5, 7, dtype=dtype, seed=4),
        "B_scale": number(0.03),
        "B_zero_point": point(dtype),
        "C_scale": number(0.05),
        "C_zero_point": point(dtype),
    }
    demand_same(op, inputs, at=opset, steps=1)


@some
@given(
    opset=OPSETS,
    dtype=CODES,
    op=st.sampled_from(["QLinearSigmoid", "QLinearLeakyRelu"]),
    points=st.booleans(),
)
def test_of_one(opset: int, dtype: Any, op: str, points: bool) -> None:
    inputs = {
        "X": codes(2, 5, 7, dtype=dtype),
        "X_scale": number(0.05),
        "X_zero_point": point(dtype, points),
        "Y_scale": number(0.04),
        "Y_zero_point": point(dtype),  # onnxruntime 1.32 aborts without it
    }
    attributes = {"alpha": 0.2} if op == "QLinearLeakyRelu" else {}
    demand_same(op, inputs, at=opset, steps=1, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=CODES,
    last=st.booleans(),
    op=st.sampled_from(["QLinearGlobalAveragePool", "QLinearAveragePool"]),
    pads=st.sampled_from([[0, 0, 0, 0], [1, 0, 1, 2]]),
    counted=st.sampled_from([0, 1]),
)
def test_a_pool(opset: int, dtype: Any, last: bool, op: str, pads: Any, counted: int) -> None:
    if dtype == np.int8 and op == "QLinearAveragePool":
        dtype = np.uint8
    inputs = {
        "X": codes(2, 5, 7, 3, dtype=dtype) if last else codes(2, 3, 5, 7, dtype=dtype),
        "x_scale": number(0.05),
        "x_zero_point": point(dtype),
        "y_scale": number(0.04),
        "y_zero_point": point(dtype),
    }
    attributes: dict[str, Any] = {"channels_last": int(last)}
    if op == "QLinearAveragePool":
        attributes |= {"kernel_shape": [3, 3], "pads": pads, "count_include_pad": counted}
    demand_same(op, inputs, at=opset, steps=1, **attributes)


@some
@given(opset=OPSETS, dtype=CODES, axis=st.sampled_from([0, 1, -1]))
def test_concat(opset: int, dtype: Any, axis: int) -> None:
    inputs = {"Y_scale": number(0.03), "Y_zero_point": point(dtype)}
    for index, scale in enumerate((0.03, 0.02, 0.07)):
        inputs[f"x{index}"] = codes(2, 5, 7, dtype=dtype, seed=index)
        inputs[f"s{index}"] = number(scale)
        inputs[f"z{index}"] = point(dtype)
    # onnxruntime looks the codes up in tables, for which they must be constant.
    constants = [name for name in inputs if name[0] != "x"]
    zero = int(inputs["Y_zero_point"])
    limits = np.iinfo(dtype)
    parts = [
        (inputs[f"x{i}"].astype(np.float32) - np.float32(zero)) * inputs[f"s{i}"] for i in range(3)
    ]
    joined = np.rint(np.concatenate(parts, axis) / np.float32(0.03)) + zero
    expected = {"y": np.clip(joined, limits.min, limits.max).astype(dtype)}
    demand_same(
        "QLinearConcat",
        inputs,
        at=opset,
        constants=constants,
        steps=1,
        expected=expected,
        axis=axis,
    )


@some
@given(
    opset=OPSETS,
    dtype=CODES,
    axis=st.sampled_from([0, 1, 2, -1]),
    written_for=st.sampled_from([12, 13]),
)
def test_softmax(opset: int, dtype: Any, axis: int, written_for: int) -> None:
    inputs = {
        "X": codes(2, 5, 7, dtype=dtype),
        "X_scale": number(0.05),
        "x_zero_point": point(dtype),
        "y_scale": number(1 / 256),
        "y_zero_point": np.array(0 if dtype == np.uint8 else -128, dtype),
    }
    given_ = {"axis": axis, "opset": written_for}
    demand_same("QLinearSoftmax", inputs, at=opset, steps=1, **given_)


@some
@given(opset=OPSETS, dtype=CODES)
def test_where(opset: int, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    inputs = {
        "condition": rng.integers(0, 2, (5, 7)).astype(bool),
        "X": codes(2, 5, 7, dtype=dtype),
        "x_scale": number(0.05),
        "x_zero_point": point(dtype),
        "Y": codes(7, dtype=dtype, seed=4),
        "y_scale": number(0.02),
        "y_zero_point": point(dtype),
        "z_scale": number(0.04),
        "z_zero_point": point(dtype),
    }
    demand_same("QLinearWhere", inputs, ("out",), at=opset, steps=1)


@some
@given(
    opset=OPSETS,
    left=CODES,
    right=CODES,
    trans=st.booleans(),
    bias=st.booleans(),
    coded=st.booleans(),
    alpha=st.sampled_from([1.0, 0.5]),
    columns=st.booleans(),
)
def test_q_gemm(
    opset: int, left: Any, right: Any, trans: bool, bias: bool, coded: bool, alpha: float,
    columns: bool,
) -> None:  # fmt: skip
    if left == np.int8:
        right = np.int8  # onnxruntime has no kernel for the other
    per = (3,) if columns else ()
    inputs = {
        "A": codes(5, 7, dtype=left),
        "a_scale": number(0.05),
        "a_zero_point": point(left),
        "B": codes(*((3, 7) if trans else (7, 3)), dtype=right),
        "b_scale": np.broadcast_to(number(0.02), per).copy(),
        "b_zero_point": np.broadcast_to(point(right), per).copy(),
        "C": codes(3, dtype=np.int8).astype(np.int32) * 100 if bias else None,
        "y_scale": number(0.3) if coded else None,
        "y_zero_point": point(left) if coded else None,
    }
    attributes = {"alpha": alpha, "transB": int(trans)}
    demand_same("QGemm", inputs, at=opset, steps=1, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=CODES,
    zero=st.booleans(),
    bias=st.booleans(),
    columns=st.booleans(),
)
def test_dynamic_quantize_mat_mul(
    opset: int, dtype: Any, zero: bool, bias: bool, columns: bool
) -> None:
    per = 3 if columns else 1
    inputs = {
        "A": normal(2, 5, 7),
        "B": codes(7, 3, dtype=dtype),
        "b_scale": np.abs(normal(per)),
        "b_zero_point": codes(per, dtype=dtype) if zero else None,
        "bias": normal(3) if bias else None,
    }
    constants = ["b_zero_point"] if zero else []
    demand_same("DynamicQuantizeMatMul", inputs, at=opset, constants=constants, tolerance=1e-4)


@some
@given(
    opset=OPSETS,
    left=CODES,
    right=CODES,
    kind=st.sampled_from([np.float32, np.float16]),
    zeros=st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
    bias=st.booleans(),
    columns=st.booleans(),
)
def test_mat_mul_integer_to_float(
    opset: int, left: Any, right: Any, kind: Any, zeros: Any, bias: bool, columns: bool
) -> None:
    if left == np.int8:
        right = np.int8
    per = 3 if columns else 1
    inputs = {
        "A": codes(2, 5, 7, dtype=left),
        "B": codes(7, 3, dtype=right),
        "a_scale": np.array([0.02], kind),
        "b_scale": (np.abs(normal(per)) / 50).astype(kind),
        "a_zero_point": codes(1, dtype=left) if "a" in zeros else None,
        "b_zero_point": codes(per, dtype=right) if "b" in zeros else None,
        "bias": normal(3, dtype=kind) if bias else None,
    }
    demand_same("MatMulIntegerToFloat", inputs, at=opset)


@search(90)
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    bits=st.sampled_from([2, 4, 8]),
    width=st.sampled_from([16, 40, 48]),
    zero=st.sampled_from([None, "codes", "numbers"]),
    flat=st.booleans(),
    bias=st.booleans(),
    stored=st.booleans(),
)
def test_mat_mul_n_bits(
    opset: int, dtype: Any, bits: int, width: int, zero: Any, flat: bool, bias: bool, stored: bool
) -> None:
    columns, block = 5, 16
    blocks = -(-width // block)
    row = -(-blocks * bits // 8)
    zeros: Array | None = None
    if zero == "codes":
        zeros = codes(columns * row) if flat else codes(columns, row)
    elif zero == "numbers":
        zeros = (normal(columns, blocks) * 2 + 2 ** (bits - 1)).astype(dtype)
    scales = (normal(columns * blocks) / 2**bits).astype(dtype)
    inputs = {
        "A": normal(2, 3, width, dtype=dtype),
        "B": codes(columns, blocks, block * bits // 8),
        "scales": scales if flat else scales.reshape(columns, blocks),
        "zero_points": zeros,
        "g_idx": None,
        "bias": normal(columns, dtype=dtype) if bias else None,
    }
    attributes = {"K": width, "N": columns, "bits": bits, "block_size": block}
    is_brain = dtype == ml_dtypes.bfloat16
    is_ours = zero == "numbers" and bits != 4  # onnxruntime takes no others
    demand_same(
        "MatMulNBits",
        inputs,
        at=max(opset, 13) if is_brain else opset,
        expected=ours("MatMulNBits", inputs, **attributes) if is_ours else None,
        constants=["B", *(["zero_points"] if zeros is not None else [])] if stored else [],
        tolerance={"float32": 2e-5, "float16": 3e-2, "bfloat16": 3e-1}[np.dtype(dtype).name],
        **attributes,
    )


@search(90)
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16]),
    kind=st.sampled_from(["uint8", "uint4", "int4"]),
    bits=st.sampled_from([4, 8]),
    axes=st.sampled_from([(0, 1), (0, -1), (1, 0), (-1, 0)]),
    zero=st.booleans(),
    stored=st.booleans(),
    rank=st.sampled_from([0, 1, 2]),
)
def test_gather_block_quantized(
    opset: int, dtype: Any, kind: str, bits: int, axes: Any, zero: bool, stored: bool, rank: int
) -> None:
    if kind == "uint8":
        axes = (0, 1)
    bits = bits if kind == "uint8" else 4
    along, blocked = axes
    shape = [6, 6]
    shape[blocked] = 48
    counts = list(shape)
    counts[blocked] = 3
    rng = np.random.default_rng(5)
    indices = rng.integers(-shape[along], shape[along], (2, 3)[:rank])
    if kind == "uint8":
        data, points = codes(6, 48 * bits // 8), codes(6, -(-3 * bits // 8))
    else:
        held = np.dtype(getattr(ml_dtypes, kind))
        low = -8 if kind == "int4" else 0
        data = rng.integers(low, low + 16, shape).astype(held)
        points = rng.integers(low, low + 16, counts).astype(held)
    inputs = {
        "data": data,
        "indices": np.asarray(indices),
        "scales": normal(*counts, dtype=dtype),
        "zero_points": points if zero else None,
    }
    attributes = {"gather_axis": along, "quantize_axis": blocked, "block_size": 16}
    if kind == "uint8":
        attributes["bits"] = bits
    stored = stored or kind != "uint8"  # a caller below opset 21 has no 4-bit types
    demand_same(
        "GatherBlockQuantized",
        inputs,
        at=opset,
        constants=["data", *(["zero_points"] if zero else [])] if stored else [],
        **attributes,
    )


@pytest.mark.long
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_slices_that_are_none(shape: tuple[int, ...], bits: int) -> None:
    inputs = {
        "data": codes(5, 32 * bits // 8),
        "indices": np.zeros(shape, np.int64),
        "scales": normal(5, 2),
        "zero_points": codes(5, -(-2 * bits // 8)),
    }
    demand_same("GatherBlockQuantized", inputs, at=21, bits=bits, block_size=16)
    inputs |= {"data": codes(5, 32, dtype=np.uint8).astype(ml_dtypes.uint4), "zero_points": None}
    demand_same("GatherBlockQuantized", inputs, at=21, constants=["data"], block_size=16)


@some
@given(opset=OPSETS, dtype=CODES, columns=st.booleans())
def test_the_codes_of_com_microsoft(opset: int, dtype: Any, columns: bool) -> None:
    per = (7,) if columns else ()
    scale = np.broadcast_to(number(0.05), per).copy()
    zero = np.broadcast_to(point(dtype), per).copy()
    inputs = {"x": codes(2, 5, 7, dtype=dtype), "s": scale, "z": zero}
    demand_same("DequantizeLinear", inputs, at=opset, axis=2)
    demand_same("QuantizeLinear", {"x": normal(2, 5, 7), "s": scale, "z": zero}, at=opset, axis=2)


def test_a_weight_is_neither_copied_nor_looked_at(tmp_path: Path) -> None:
    weight = codes(5, 3, 8)
    (tmp_path / "weights").write_bytes(weight.tobytes())
    inputs = {"A": normal(2, 48), "B": weight, "scales": normal(5, 3)}
    attributes = {"K": 48, "N": 5, "bits": 4, "block_size": 16}
    proto = node_model("MatMulNBits", inputs, ("y",), "com.microsoft", attributes)
    proto.opset_import[0].version = 24
    model = ir.from_proto(proto)
    old = next(v for v in model.graph.inputs if v.name == "B")
    model.graph.inputs.remove(old)
    old.const_value = ir.ExternalTensor(
        "absent", 64, 120, ir.DataType.UINT8, shape=ir.Shape([5, 3, 8]), name="B", base_dir=tmp_path
    )
    model.graph.register_initializer(old)
    legalise(model, 24, Options(), contrib="standard")
    (made,) = (v for v in model.graph.initializers.values() if v.dtype == ir.DataType.UINT4 and
               isinstance(v.const_value, ir.ExternalTensor))  # fmt: skip
    tensor = made.const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert (tensor.location, tensor.offset, tensor.length) == ("absent", 64, 120)
    assert list(made.shape or ()) == [5, 48]
    assert "B" not in model.graph.initializers


def test_the_newest_form_is_a_blocked_dequantize_linear() -> None:
    inputs = {"A": normal(2, 48), "B": codes(5, 3, 8), "scales": normal(5, 3)}
    attributes = {"K": 48, "N": 5, "bits": 4, "block_size": 16}
    model, _ = standard("MatMulNBits", inputs, constants=["B"], **attributes)
    assert [n.op_type for n in model.graph] == ["DequantizeLinear", "Transpose", "MatMul"]


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16]),
    width=st.sampled_from([48, 40]),
    zero=st.booleans(),
    bias=st.booleans(),
    stored=st.booleans(),
)
def test_rows_of_a_weight_in_any_order(
    opset: int, dtype: Any, width: int, zero: bool, bias: bool, stored: bool
) -> None:
    if dtype == np.float16:
        zero = False  # onnxruntime takes none
    rng = np.random.default_rng(5)
    inputs = {
        "A": normal(2, 3, width, dtype=dtype),
        "B": codes(5, 3, 8),
        "scales": (normal(5, 3) / 16).astype(dtype),
        "zero_points": (normal(5, 3) * 2 + 8).astype(dtype) if zero else None,
        "g_idx": rng.integers(0, 3, 48)[:width].astype(np.int32),
        "bias": normal(5, dtype=dtype) if bias else None,
    }
    demand_same(
        "MatMulNBits",
        inputs,
        at=opset,
        constants=["B", "g_idx"] if stored else [],
        tolerance=2e-5 if dtype == np.float32 else 3e-2,
        K=width,
        N=5,
        bits=4,
        block_size=16,
    )


REORDERED = {
    "zero points that onnxruntime forgets": (4, codes(5, 2)),
    "codes of 8 bits, which onnxruntime refuses": (8, None),
}


@pytest.mark.parametrize("name", REORDERED)
def test_rows_in_another_order_that_have_no_one_meaning_are_refused(name: str) -> None:
    bits, zeros = REORDERED[name]
    inputs = {
        "A": normal(2, 48),
        "B": codes(5, 3, 2 * bits),
        "scales": normal(5, 3),
        "zero_points": zeros,
        "g_idx": np.zeros(48, np.int32),
    }
    attributes = {"K": 48, "N": 5, "bits": bits, "block_size": 16}
    assert "`g_idx`" in refusal("MatMulNBits", inputs, **attributes)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16]),
    kind=st.sampled_from([0, 1]),
    block=st.sampled_from([16, 32]),
    stored=st.booleans(),
)
def test_mat_mul_bnb4(opset: int, dtype: Any, kind: int, block: int, stored: bool) -> None:
    width, columns = 48, 6
    inputs = {
        "A": normal(2, 3, width, dtype=dtype),
        "B": codes(width * columns // 2),
        "absmax": np.abs(normal(width * columns // block)).astype(dtype),
    }
    attributes = {"K": width, "N": columns, "block_size": block, "quant_type": kind}
    demand_same(
        "MatMulBnb4",
        inputs,
        at=opset,
        constants=["B", "absmax"] if stored else [],
        tolerance=2e-5 if dtype == np.float32 else 3e-2,
        **attributes,
    )


def test_half_a_block_of_numbers_is_refused() -> None:
    inputs = {"A": normal(2, 5), "B": codes(20), "absmax": np.abs(normal(3))}
    given_ = {"K": 5, "N": 7, "block_size": 16, "quant_type": 1}
    assert "whole number" in refusal("MatMulBnb4", inputs, **given_)
    assert "`transB`" in refusal("MatMulBnb4", inputs, **given_, transB=0)


def test_a_table_of_floats_is_refused() -> None:
    table = np.zeros((6, 48), np.uint8).view(ml_dtypes.float8_e4m3fn)
    inputs = {"data": table, "indices": np.array([1]), "scales": normal(6, 3)}
    assert "FLOAT8E4M3FN" in refusal("GatherBlockQuantized", inputs, block_size=16)
