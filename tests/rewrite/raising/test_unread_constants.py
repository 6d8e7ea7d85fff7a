"""What raising leaves behind of constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.model_io.model import read

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models" / "torch_static"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "assume"),
    [
        ("hf/llama_static__dynamo_op18", ()),
        ("hand/scatter_expand_bhsd__dynamo_op18", ("same-dim:s28=s11",)),
    ],
)
def test_no_constant_is_added_that_nobody_reads(name: str, assume: tuple[str, ...]) -> None:
    path = MODELS / f"{name}.onnx"
    model, report = raise_(path, assume=assume, verify=False)
    assert report.raised
    unread = {n for n, value in model.graph.initializers.items() if not value.uses()}
    assert unread <= set(read(path).graph.initializers)
