"""Encoders: what is known of models without caches, whose sizes go through windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_kvtool.model_io.model import read
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.shapes.inference import infer_model
from tests.grids import part
from tests.shapes.agreement import bindings, disagreements

ENCODERS = Path(__file__).resolve().parent.parent.parent / "fixtures" / "encoders"
UNKNOWN = {"swin": 64}
"""How many values stay unknown: swin reads pads out of a table that it reverses."""


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("path", sorted(ENCODERS.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_value_of_an_encoder_is_known(path: Path) -> None:
    report = infer_model(read(path)).report
    assert len(report.unknown) <= UNKNOWN.get(path.stem, 0)
    assert report.conflicts == ()


@pytest.mark.long
@part(2)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("resnet", (1, 3, 47, 65)),
        ("convnext", (2, 3, 32, 39)),
        ("wav2vec2", (2, 400)),
        ("wav2vec2", (1, 1601)),
        ("bert", (2, 7)),
        ("bert", (3, 1)),
        ("yolos", (2, 3, 16, 32)),
    ],
)
def test_no_value_of_a_run_contradicts_what_was_inferred(name: str, sizes: tuple[int, ...]) -> None:
    model = read(ENCODERS / f"{name}.onnx")
    feeds = {v.name or "": np.ones(sizes, v.dtype and v.dtype.numpy()) for v in model.graph.inputs}
    names = [value.name for node in model.graph for value in node.outputs if value.name]
    computed = Evaluator(model).run(feeds, fetch=names).values
    found = infer_model(read(ENCODERS / f"{name}.onnx"))
    assert list(disagreements(found, computed, bindings(model, feeds))) == []
