"""`raise --dim` and `--static`: sizes of what was raised, fixed for good."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.model import read
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.symbolic.dims import dims_of
from tests.rewrite.fixing.test_fixtures import assert_static

_FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
_STATIC = _FIXTURES / "models" / "torch_static" / "hf"


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        pytest.param("llama_static__dynamo_op18", {"s58": 3}, id="dynamo"),
        pytest.param("llama_static__ts_op17", {"seq": 1}, id="torchscript, one token"),
        pytest.param("gemma3_static_slidingfull_L1__dynamo_op18", {}, id="no names"),
    ],
)
def test_a_decoder_with_fixed_caches(name: str, dims: dict[str, int]) -> None:
    model, report = raise_(str(_STATIC / f"{name}.onnx"), dims=dims, static=True)
    assert report.raised
    assert_static(model)
    assert report.verification.status == "equal"
    operators = Counter(node.op_type for node in model.graph)
    assert operators["TensorScatter"] == len(report.raised)


def test_dims_without_static_leave_other_names() -> None:
    path = _FIXTURES / "growing" / "llama__optimum.onnx"
    model, report = raise_(str(path), capacity=16, dims={"batch_size": 2})
    shapes = {value.name: dims_of(value) for value in model.graph.inputs}
    assert shapes["input_ids"] == (2, "sequence_length")
    assert shapes["past_key_values.0.key"] == (2, 2, 16, 8)
    assert shapes["attention_mask"] == (2, "past_sequence_length + sequence_length")
    assert report.verification.status == "equal"


def test_a_name_along_which_a_cache_grows_is_no_number() -> None:
    """With one, every step would begin behind the same rows."""
    path = _FIXTURES / "growing" / "llama__optimum.onnx"
    dims = {"past_sequence_length": 5, "batch_size": 2}
    model, _ = raise_(str(path), capacity=16, dims=dims, verify=False)
    mask = next(value for value in model.graph.inputs if value.name == "attention_mask")
    assert dims_of(mask) == (2, "past_sequence_length + sequence_length")


def test_what_stays_dynamic_is_refused_by_name() -> None:
    source = read(_STATIC / "llama_static__dynamo_op18.onnx")
    with pytest.raises(Refused) as error:
        raise_(source, static=True, verify=False)
    (refused,) = error.value.report.reasons
    assert refused.code == "symbolic-dimension"
    assert "`--dim s58=N`" in str(refused)


def test_sliced_attention_is_not_static() -> None:
    with pytest.raises(UsageError, match="as many rows as are in use"):
        raise_(str(_STATIC / "llama_static__dynamo_op18.onnx"), static=True, attention="sliced")
