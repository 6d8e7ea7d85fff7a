"""Execution providers of onnxruntime: chosen by name, named in reports, refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnx_kvtool as kv
from onnx_kvtool.runtime import onnxruntime as runtime
from onnx_kvtool.runtime.sessions import accelerator, provider, running_on
from onnx_kvtool.verification.comparison.tolerances import Measure

MODEL = "fixtures/models/native/llama_static.onnx"
THERE = [*onnxruntime.get_available_providers(), "OwnExecutionProvider"]
FORMS = {
    "its whole name": ("CPUExecutionProvider", ("CPUExecutionProvider", {})),
    "its short name in any case": ("cpu", ("CPUExecutionProvider", {})),
    "options": ("Own,a=1,b=x=y", ("OwnExecutionProvider", {"a": "1", "b": "x=y"})),
}
WRONG = {
    "Owm": r"no execution provider `Owm`",
    "": "no execution provider ``",
    "Own,a": "has the option `a`, expected `key=value`",
    "Own,=1": "has the option `=1`",
}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An onnxruntime that says it has one more provider."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: THERE)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("case", [*FORMS])
def test_a_provider_is_chosen_in_a_block(case: str) -> None:
    text, expected = FORMS[case]
    with running_on(text):
        assert provider() == expected
        assert runtime.named().endswith(f" ({expected[0]})")
        assert accelerator() == (None if "CPU" in expected[0] else expected[0])
    assert provider() is None and accelerator() is None


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("text", [*WRONG])
def test_another_name_is_refused_with_those_that_are_there(text: str, kvtool, root: Path) -> None:
    with pytest.raises(kv.UsageError, match=WRONG[text]) as caught:
        kv.verify(root / MODEL, root / MODEL, provider=text)
    if not text.startswith("Own,"):
        assert "`CPUExecutionProvider`, `OwnExecutionProvider`" in (caught.value.help or "")
    for command in (
        ["verify", root / MODEL, root / MODEL],
        ["bench", root / MODEL],
        ["eval", root / MODEL, "--random", "--runtime", "onnxruntime"],
    ):
        assert kvtool(*command, "--provider", text).exit_code == 2


@pytest.mark.long
def test_reports_name_the_provider(kvtool, root: Path) -> None:
    path, cpu = root / MODEL, "(CPUExecutionProvider)"
    assert cpu in str(kv.verify(path, path, cases=1, steps=0, provider="CPU").runtime)
    report = kv.bench(path, prompt=2, tokens=2, context=3, rounds=1, provider="CPU")
    assert cpu in report.runtime and report.runs[0].in_place
    run = kvtool(
        "eval", path, "--random", "--runtime", "onnxruntime", "--provider", "CPU",
        "--format", "json",
    )  # fmt: skip
    assert cpu in json.loads(run.stdout)["runtime"]
    found = kv.evaluate(path, random=True, runtime="onnxruntime", provider="CPU")
    assert found.keys() == kv.evaluate(path, random=True).keys()


REFERENCE: dict[str, Any] = {
    "verify": lambda path: kv.verify(path, path, runtime="reference", provider="CPU"),
    "evaluate": lambda path: kv.evaluate(path, random=True, provider="CPU"),
}


@pytest.mark.parametrize("function", [*REFERENCE])
def test_the_reference_has_no_provider(function: str, root: Path) -> None:
    with pytest.raises(kv.UsageError, match="is for onnxruntime"):
        REFERENCE[function](root / MODEL)


@pytest.mark.long
@pytest.mark.usefixtures("own")
def test_one_that_does_not_start_is_no_silent_cpu(root: Path) -> None:
    report = kv.verify(root / MODEL, root / MODEL, provider="Own", cases=1)
    assert report.status == "unrunnable"
    assert "OwnExecutionProvider" in (report.detail or "")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", 5e-3), ("float64", 5e-3), ("int64", 0)]
)
def test_an_accelerator_rounds_as_float16_does(dtype: str, expected: float) -> None:
    measure = Measure(frozenset())
    value = np.zeros(3, dtype)
    with running_on("Own"):
        wide = measure.of(value)
    assert wide.rtol == expected
    assert not expected or "OwnExecutionProvider" in wide.because
    assert measure.of(value).rtol < 1e-3
    with running_on("CPU"):
        assert accelerator() is None
