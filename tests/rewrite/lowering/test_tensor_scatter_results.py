"""Lowered TensorScatter against an oracle that was written from the text: equal in every bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import Dim, one_update, tensor_scatter_oracle
from tests.grids import part, search

_FLOAT = onnx.TensorProto.FLOAT
_ORT_TYPES = [
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.INT8,
    onnx.TensorProto.UINT16,
    onnx.TensorProto.INT32,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
]


@dataclass(frozen=True)
class Case:
    """One update: what the file says of it, and what is fed."""

    shape: tuple[int, ...]
    axis: int
    length: int
    declared_past: Sequence[Dim] | None
    declared_update: Sequence[Dim] | None
    declared_batch: Dim
    axis_attribute: int | None
    mode: str | None
    write_indices: str | None
    starts: tuple[int, ...]
    dtype: int
    opset: int
    via: str
    index_dtype: str
    bounds: str
    seed: int


def _declare(draw: st.DrawFn, dims: Sequence[int], prefix: str) -> list[Dim]:
    """Declare each dimension as a number, a name or not at all."""
    forms = st.sampled_from(["number", "name", "unknown"])
    return [
        {"number": n, "name": f"{prefix}{i}", "unknown": None}[draw(forms)]
        for i, n in enumerate(dims)
    ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw an update that the specification allows, and any way to declare it."""
    rank = draw(st.integers(2, 5))
    shape = tuple(
        draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank).filter(lambda d: max(d) > 0))
    )
    axis = draw(st.integers(1, rank - 1))
    capacity = shape[axis]
    length = draw(st.integers(0, capacity))
    mode = draw(st.sampled_from([None, "linear", "circular"]))
    write_indices = draw(st.sampled_from(["write_indices", "write_indices", "", None]))
    bounds = draw(st.sampled_from(["checked", "unchecked"]))
    highest = capacity - length if mode != "circular" else 3 * capacity + 1
    # TensorScatter refuses a negative start; in a circular cache, unchecked ones wrap.
    lowest = -2 * capacity if mode == "circular" and bounds == "unchecked" else 0
    starts = tuple(
        draw(st.lists(st.integers(lowest, highest), min_size=shape[0], max_size=shape[0]))
    )
    same = draw(st.booleans())  # whether cache and update share the names of their dimensions
    past = _declare(draw, shape, "d")
    update_shape = [length if i == axis else n for i, n in enumerate(shape)]
    update = _declare(draw, update_shape, "d" if same else "u")
    if isinstance(update[axis], str):
        update[axis] = "length"
    axis_attributes: list[int | None] = [axis, axis - rank]
    if axis == rank - 2:
        axis_attributes.append(None)
    axis_attribute = draw(st.sampled_from(axis_attributes))
    rankless = axis_attribute is not None and axis_attribute > 0 and draw(st.booleans())
    via = draw(st.sampled_from(["auto", "scatternd", "scatterelements"]))
    if rankless and via != "scatternd":
        rankless = False
    int32 = via == "scatterelements" and draw(st.booleans())
    return Case(
        shape=shape,
        axis=axis,
        length=length,
        declared_past=None if rankless else past,
        declared_update=None if rankless else update,
        declared_batch=draw(st.sampled_from([shape[0], "d0", None])),
        axis_attribute=axis_attribute,
        mode=mode,
        write_indices=write_indices,
        starts=starts,
        dtype=draw(st.sampled_from(_ORT_TYPES)),
        opset=draw(st.integers(11, 23)),
        via=via,
        index_dtype="int32" if int32 else "int64",
        bounds=bounds,
        seed=draw(st.integers(0, 2**16)),
    )


def _bits(rng: np.random.Generator, shape: Sequence[int], dtype: int) -> np.ndarray:
    """Return random bit patterns; NaNs of every payload among them."""
    numpy_dtype = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    if dtype == onnx.TensorProto.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    size = int(np.prod(shape)) * numpy_dtype.itemsize
    return np.frombuffer(rng.bytes(size), numpy_dtype).reshape(shape)


def _lowered(source: onnx.ModelProto, **options: Any) -> ir.Model:
    result, report = lower(ir.from_proto(source), verify=False, **options)
    assert not report.refused
    assert all(n.op_type != "TensorScatter" for n in result.graph)
    if result.graph.inputs[0].shape is not None:  # the checker wants shapes on inputs
        onnx.checker.check_model(ir.to_proto(result), full_check=True)
    return result


@search(400)
@given(cases())
def test_every_legal_update_gives_the_same_bits(case: Case) -> None:
    """Ranks, axes, modes, starts, absent inputs, empty sizes, declared or not, opsets 11 to 23."""
    source = one_update(
        case.declared_past,
        case.declared_update,
        batch=case.declared_batch,
        dtype=case.dtype,
        write_indices=case.write_indices,
        axis=case.axis_attribute,
        mode=case.mode,
    )
    result = _lowered(
        source, opset=case.opset, via=case.via, index_dtype=case.index_dtype, bounds=case.bounds
    )
    rng = np.random.default_rng(case.seed)
    past = _bits(rng, case.shape, case.dtype)
    update = _bits(
        rng, [case.length if i == case.axis else n for i, n in enumerate(case.shape)], case.dtype
    )
    feeds = {"past_cache": past, "update": update}
    starts = None
    if case.write_indices:
        starts = feeds["write_indices"] = np.asarray(case.starts, np.int64)
    expected = tensor_scatter_oracle(past, update, starts, case.axis, case.mode or "linear")
    actual = Session(serialize(result), "").run(feeds)["present_cache"]
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


_BATCH, _HEADS, _CAPACITY, _SIZE = 2, 3, 7, 5
_STATIC = ([2, 3, 7, 5], [2, 3, 4, 5], 2)
_SYMBOLIC = (["B", "H", "S", "D"], ["B", "H", "L", "D"], "B")
_UNKNOWN = ([None] * 4, [None] * 4, None)
_TOO_FAR = {
    "one row before the cache": (-1, 0),
    "the whole cache before the cache": (-_CAPACITY, 0),
    "below every legal index": (-_CAPACITY - 1, 0),
    "the least int32": (-(2**31), 0),
    "minus 2**30, the modulus of a cheaper check": (-(2**30), 0),
    "minus 2**32, zero when narrowed": (-(2**32), 0),
    "the least int64": (-(2**63), 0),
    "the second batch row alone": (0, -2),
    "one row behind the cache": (_CAPACITY - 4 + 1, 0),
    "the capacity": (_CAPACITY, 0),
    "2**30": (2**30, 0),
    "2**32, zero when narrowed": (2**32, 0),
    "the largest int64": (2**63 - 1, 0),
}


_OUT_OF_BOUNDS = r"(?i)invalid indice|out of (data )?bounds"


@pytest.mark.long
@part(16)
@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(
    ("via", "index_dtype"),
    [("scatternd", "int64"), ("scatterelements", "int64"), ("scatterelements", "int32")],
    ids=["scatternd", "scatterelements", "scatterelements int32"],
)
@pytest.mark.parametrize(
    "declared", [_STATIC, _SYMBOLIC, _UNKNOWN], ids=["static", "symbolic", "unknown"]
)
@pytest.mark.parametrize("starts", list(_TOO_FAR.values()), ids=list(_TOO_FAR))
def test_a_linear_start_outside_the_cache_fails_at_run_time(
    starts: tuple[int, int], declared: Any, via: str, index_dtype: str, opset: int
) -> None:
    """Negative or too large, TensorScatter fails; so does the lowered model, in every form."""
    past, update, batch = declared
    result = _lowered(
        one_update(past, update, batch=batch), opset=opset, via=via, index_dtype=index_dtype
    )
    feeds = {
        "past_cache": np.zeros((2, 3, 7, 5), np.float32),
        "update": np.ones((2, 3, 4, 5), np.float32),
        "write_indices": np.asarray(starts, np.int64),
    }
    with pytest.raises(RunFailed, match=_OUT_OF_BOUNDS):
        Session(serialize(result), "").run(feeds)


_NEGATIVE = {name: starts for name, starts in _TOO_FAR.items() if min(starts) < 0}


@part(16)
@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize(
    ("via", "index_dtype"),
    [("scatternd", "int64"), ("scatterelements", "int64"), ("scatterelements", "int32")],
    ids=["scatternd", "scatterelements", "scatterelements int32"],
)
@pytest.mark.parametrize(
    "declared", [_STATIC, _SYMBOLIC, _UNKNOWN], ids=["static", "symbolic", "unknown"]
)
@pytest.mark.parametrize("starts", list(_NEGATIVE.values()), ids=list(_NEGATIVE))
def test_a_negative_circular_start_fails_at_run_time(
    starts: tuple[int, int], declared: Any, via: str, index_dtype: str, length: int, opset: int
) -> None:
    """In circular mode, too, TensorScatter fails; a remainder would bring the row back."""
    past, update, batch = declared
    update = [length if size == 4 else size for size in update]
    source = one_update(past, update, batch=batch, mode="circular")
    result = _lowered(source, opset=opset, via=via, index_dtype=index_dtype)
    feeds = {
        "past_cache": np.zeros((2, 3, 7, 5), np.float32),
        "update": np.ones((2, 3, length, 5), np.float32),
        "write_indices": np.asarray(starts, np.int64),
    }
    with pytest.raises(RunFailed, match=_OUT_OF_BOUNDS):
        Session(serialize(result), "").run(feeds)


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
@pytest.mark.parametrize(
    "declared", [_STATIC, _SYMBOLIC, _UNKNOWN], ids=["static", "symbolic", "unknown"]
)
def test_the_largest_start_of_a_circular_cache_wraps_like_any_other(
    declared: Any, via: str, length: int
) -> None:
    """No start is so large that its remainder lands in another sequence or head."""
    past, update, batch = declared
    update = [length if size == 4 else size for size in update]
    result = _lowered(one_update(past, update, batch=batch, mode="circular"), opset=18, via=via)
    starts = [2**63 - 1, 2**63 - 2]
    written = np.arange(2 * 3 * length * 5, dtype=np.float32).reshape(2, 3, length, 5) + 1
    expected = np.zeros((2, 3, 7, 5), np.float32)
    for b, start in enumerate(starts):
        for row in range(length):
            expected[b, :, (start + row) % 7] = written[b, :, row]
    feeds = {
        "past_cache": np.zeros_like(expected),
        "update": written,
        "write_indices": np.asarray(starts, np.int64),
    }
    (got,) = Session(serialize(result), "").run(feeds).values()
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_negative_constant_start_is_refused(mode: str) -> None:
    source = one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2, mode=mode)
    del source.graph.input[2]
    starts = onnx.numpy_helper.from_array(np.array([3, -1], np.int64), "write_indices")
    source.graph.initializer.append(starts)
    with pytest.raises(Refused) as info:
        lower(ir.from_proto(source), verify=False)
    assert [r.code for r in info.value.report.reasons] == ["write-out-of-range"]


@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("start", [0, 3])
def test_an_update_longer_than_the_cache_fails_at_run_time(
    via: str, mode: str, opset: int, start: int
) -> None:
    """With sizes known at run time only; circular would otherwise write some rows twice."""
    past, update, batch = _SYMBOLIC
    result = _lowered(one_update(past, update, batch=batch, mode=mode), opset=opset, via=via)
    feeds = {
        "past_cache": np.zeros((2, 3, 7, 5), np.float32),
        "update": np.ones((2, 3, 8, 5), np.float32),
        "write_indices": np.full(2, start, np.int64),
    }
    with pytest.raises(RunFailed):
        Session(serialize(result), "").run(feeds)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("declared", [_STATIC, _SYMBOLIC], ids=["static", "symbolic"])
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
def test_an_unchecked_negative_start_counts_from_the_end(
    via: str, declared: Any, mode: str
) -> None:
    """What `--bounds unchecked` gives up, so that nobody has to guess."""
    past, update, batch = declared
    source = one_update(past, update, batch=batch, mode=mode)
    result = _lowered(source, opset=18, via=via, bounds="unchecked")
    feeds = {
        "past_cache": np.zeros((2, 3, 7, 5), np.float32),
        "update": np.ones((2, 3, 4, 5), np.float32),
        "write_indices": np.asarray([-4, 0], np.int64),
    }
    present = Session(serialize(result), "").run(feeds)["present_cache"]
    assert present[0, 0, :, 0].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert present[1, 0, :, 0].tolist() == [1, 1, 1, 1, 0, 0, 0]
