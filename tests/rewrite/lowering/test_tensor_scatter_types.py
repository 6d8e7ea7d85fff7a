"""All 24 element types of TensorScatter: as they are, through an exact detour, or refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime import onnxruntime, reference
from tests.cache_models import (
    model,
    one_update,
    tensor_scatter_node,
    tensor_scatter_oracle,
    value,
)
from tests.grids import part

_T = onnx.TensorProto
_NEVER = 99
_DIRECT_FROM = {
    **dict.fromkeys(
        ["FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16"], 11
    ),
    **dict.fromkeys(["UINT32", "UINT64", "BOOL", "STRING", "COMPLEX64", "COMPLEX128"], 11),
    "BFLOAT16": 13,
}
_DETOUR_FROM = {
    **dict.fromkeys(["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"], 19),
    **dict.fromkeys(["INT4", "UINT4"], 21),
    "FLOAT4E2M1": 23,
    "FLOAT8E8M0": 24,
}
_TYPES = [*_DIRECT_FROM, *_DETOUR_FROM]
_ONNXRUNTIME_LACKS = {"COMPLEX64", "COMPLEX128", "INT4", "UINT4", "FLOAT4E2M1", "FLOAT8E8M0"}


def test_the_table_names_every_type_of_the_schema() -> None:
    facts = op_facts("TensorScatter", 24)
    assert facts is not None
    named = {f"tensor({name.lower()})" for name in _TYPES}
    assert named == set(facts.inputs[0].types)
    assert len(_TYPES) == 24


def _patterns(name: str) -> np.ndarray:
    """Return every bit pattern of a small type, or 256 random ones of a larger one."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(_T, name))
    rng = np.random.default_rng(20241)
    if name == "STRING":
        return np.array([f"v{i}\u00e9" for i in range(256)], object)
    if name == "BOOL":
        return (np.arange(256) % 2).astype(np.bool_)
    if name in ("INT4", "UINT4", "FLOAT4E2M1"):
        return np.tile(np.arange(16, dtype=np.uint8), 16).view(dtype)
    if name == "FLOAT8E8M0":
        # The reference's Cast (onnx 1.23.2) rounds 2**-127, pattern 0, up; onnxruntime, which has
        # no arrays of this type, is asked below.
        return np.maximum(np.arange(256, dtype=np.uint8), 1).view(dtype)
    if dtype.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dtype)
    return np.frombuffer(rng.bytes(256 * dtype.itemsize), dtype)


def _run(result: ir.Model, name: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    runtime = reference if name in _ONNXRUNTIME_LACKS else onnxruntime
    return runtime.Session(serialize(result), "").run(feeds)["present_cache"]


@part(6)
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
@pytest.mark.parametrize(
    "opset",
    [
        *(11, 12, 13, 16, 18, 19, 20, 21, 22, 23),
        pytest.param(24, marks=pytest.mark.needs_onnxruntime("1.29")),
    ],
)
@pytest.mark.parametrize("name", _TYPES)
def test_type(name: str, opset: int, via: str) -> None:
    """Each type at each opset: the same bits for every pattern, or a refusal that says why."""
    source = one_update([2, 16, 8], [2, 8, 8], batch=2, dtype=getattr(_T, name), axis=1)
    wanted = {"only": ["TensorScatter"]} if opset == 24 else {"opset": opset}
    lowest = min(_DIRECT_FROM.get(name, _NEVER), _DETOUR_FROM.get(name, _NEVER))
    if opset < lowest:
        with pytest.raises(Refused) as refused:
            lower(ir.from_proto(source), verify=False, via=via, **wanted)
        (refusal,) = refused.value.report.refused
        assert refusal.code == "element-type"
        assert name in refusal.message
        assert refusal.lowest_opset == lowest
        return
    result, _ = lower(ir.from_proto(source), verify=False, via=via, **wanted)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    casts = [n for n in result.graph if n.op_type == "Cast"]
    assert len(casts) == (3 if name in _DETOUR_FROM else 0)
    assert ["saturate" in n.attributes for n in casts] == (
        [False, False, name == "FLOAT8E5M2"] if casts else []
    )
    past = _patterns(name).reshape(2, 16, 8)
    update = past[::-1, ::2].copy()
    starts = np.array([8, 3], np.int64)
    expected = tensor_scatter_oracle(past, update, starts, 1, "linear")
    actual = _run(result, name, {"past_cache": past, "update": update, "write_indices": starts})
    if name == "STRING":
        assert actual.tolist() == expected.tolist()
    elif name == "FLOAT8E5M2":
        # The three NaN patterns of each sign become one; nothing else changes, infinities included.
        nan = np.isnan(expected.astype(np.float32))
        assert np.isnan(actual.astype(np.float32))[nan].all()
        assert actual[~nan].tobytes() == expected[~nan].tobytes()
        assert expected.dtype == ml_dtypes.float8_e5m2
    else:
        assert actual.dtype == expected.dtype
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.needs_onnxruntime("1.29")
def test_float8e8m0_passes_through_its_carrier_in_onnxruntime() -> None:
    """Every power of two from 2**-127 to 2**127 and NaN, entering and leaving as float32."""
    to, back = (helper.make_node("Cast", [a], [b], to=t) for a, b, t in _ENDS)
    update = helper.make_node("Cast", ["update32"], ["update"], to=_T.FLOAT8E8M0)
    source = model(
        [to, update, tensor_scatter_node(axis=1), back],
        [
            value("past32", _T.FLOAT, [1, 256]),
            value("update32", _T.FLOAT, [1, 3]),
            value("write_indices", _T.INT64, [1]),
        ],
        [value("present32", _T.FLOAT, [1, 256])],
    )
    result, _ = lower(ir.from_proto(source), only=["TensorScatter"], verify=False)
    powers = np.array([[2.0 ** (i - 127) for i in range(255)] + [np.nan]], np.float32)
    feeds = {"past32": powers, "update32": powers[:, 250:253], "write_indices": np.array([1])}
    present = onnxruntime.Session(serialize(result), "").run(feeds)["present32"]
    expected = powers.copy()
    expected[:, 1:4] = powers[:, 250:253]
    assert present.tobytes() == expected.tobytes()


_ENDS = [
    ("past32", "past_cache", _T.FLOAT8E8M0),
    ("present_cache", "present32", _T.FLOAT),
]
