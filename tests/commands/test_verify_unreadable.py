"""A model of which a part cannot be read is no model to compare with, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnx_kvtool.commands.verify import verify
from onnx_kvtool.core.errors import UnreadableModel
from tests.core.small import plain, save, weighted, with_function


def _short() -> onnx.ModelProto:
    return weighted(TensorProto(name="w", data_type=1, dims=[3, 5], raw_data=bytes(8)))


def _vast() -> onnx.ModelProto:
    return weighted(TensorProto(name="w", data_type=1, dims=[2**62, 5], raw_data=bytes(8)))


def _circular() -> onnx.ModelProto:
    model = with_function()
    model.functions[0].node[0].CopyFrom(
        helper.make_node("twice", ["u"], ["t"], domain="my", overload="long")
    )
    model.functions[0].opset_import.add(domain="my", version=1)
    return model


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(_short(), "`w`: has 8 bytes of data", id="data of another length"),
        pytest.param(_vast(), "exceeds", id="more elements than can be counted"),
        pytest.param(_circular(), "calls itself", id="a function that calls itself"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_part_that_cannot_be_read(
    tmp_path: Path, broken: onnx.ModelProto, message: str, is_first: bool
) -> None:
    paths = [save(broken, tmp_path / "broken.onnx"), save(plain(), tmp_path / "sound.onnx")]
    with pytest.raises(UnreadableModel, match=message) as caught:
        verify(*(paths if is_first else paths[::-1]))
    assert "broken.onnx`: " in caught.value.message
