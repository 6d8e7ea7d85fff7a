"""Models without caches: inferred, lowered and proven at sizes that suit them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import read
from onnx_kvtool.verification.comparison import side_by_side
from onnx_kvtool.verification.comparison.rounded_values import Emptiness
from onnx_kvtool.verification.engine import compare_models
from onnx_kvtool.verification.report import Settings
from onnx_kvtool.verification.subject import capture
from tests.grids import part

pytestmark = pytest.mark.long

ENCODERS = Path(__file__).resolve().parents[2] / "fixtures" / "encoders"

NAMES = [path.stem for path in sorted(ENCODERS.glob("*.onnx"))]

KNOWN = {
    "ast": 90, "bert": 127, "convnext": 34, "deit": 87, "resnet": 11, "segformer": 466,
    "swin": 450, "vit": 109, "wav2vec2": 86, "yolos": 115,
}  # fmt: skip
"""Values of which type and shape are known, at least; of the main graph, outputs included."""


@part(10)
@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_is_lowered_and_proven(name: str, opset: int) -> None:
    lowered, report = kv.lower(read(ENCODERS / f"{name}.onnx"), opset=opset)
    assert lowered.opset_imports[""] == opset
    found = report.verification
    assert found.status == "equal", found.detail
    assert found.cases >= 1  # on a slow machine further cases are left out


@part(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_shapes_of_an_encoder_are_known(name: str) -> None:
    _, report = kv.infer(ENCODERS / f"{name}.onnx")
    assert report.known_after >= KNOWN[name]


@part(6)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_empty_in_the_runs_that_prove(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = capture(read(ENCODERS / f"{name}.onnx"), "A")
    ran: list[dict[str, tuple[int, ...]]] = []

    run_case = side_by_side._run_case

    def spy(*arguments: Any) -> None:
        inputs, led = arguments[-1]
        ran.append({name: value.shape for name, value in inputs.items()})
        assert all(value.size for value in led.values())
        assert not Emptiness(source.model, "", "onnxruntime")(inputs)
        run_case(*arguments)

    monkeypatch.setattr(side_by_side, "_run_case", spy)
    compare_models(source, capture(read(ENCODERS / f"{name}.onnx"), "B"), Settings(cases=4))
    assert len(ran) == 4
    batches = {shapes[next(iter(shapes))][0] for shapes in ran}
    assert batches == {1, 2, 3}


@pytest.mark.exhaustive
@part(4)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("resnet", "bert")])
def test_a_fault_in_an_encoder_is_found(name: str) -> None:
    source = ENCODERS / f"{name}.onnx"
    message = onnx.load(source)
    node = next(n for n in message.graph.node if n.op_type == "LayerNormalization")
    kept = [attribute for attribute in node.attribute if attribute.name != "epsilon"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("epsilon", 1.0)])
    found = kv.verify(source, ir.from_proto(message))
    assert found.status == "different"
    assert re.search(r" in case \d with `\w+` of shape ", found.detail or "")
    assert "cache" not in (found.detail or "")
