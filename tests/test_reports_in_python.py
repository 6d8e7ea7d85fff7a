"""Reports as Python libraries have them: dicts, frames, one-line reprs, names of their own."""

from __future__ import annotations

import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.evaluate import run as run_eval
from onnx_kvtool.commands.requests import EvalRequest
from tests.grids import each

LLAMA = "fixtures/models/native/llama_static.onnx"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """A result of each kind, of one model."""
    path = Path(__file__).parent.parent / LLAMA
    lowered, lower_report = kv.lower(path, opset=18, verify=False)
    raised, raise_report = kv.raise_(lowered, verify=False)
    return {
        "path": path,
        "lowered": lowered,
        "raised": raised,
        "LowerReport": lower_report,
        "Lowered": lower_report.lowered[0],
        "RaiseReport": raise_report,
        "Raised": raise_report.raised[0],
        "Verification": lower_report.verification,
        "CheckReport": kv.check(path.parent.parent / "optimized"),
        "DiffReport": kv.diff(path, lowered),
        "EvalReport": run_eval(EvalRequest(model=str(path), random=True)),
        "InferReport": kv.infer(path)[1],
        "InspectReport": kv.inspect(path),
        "VerifyReport": kv.verify(path, lowered, cases=1, steps=1),
        "BenchReport": kv.bench([path], prompt=2, tokens=2, context=4, rounds=1),
        "Decoder": kv.Decoder(path),
        "ReferenceEvaluator": kv.ReferenceEvaluator(path),
    }


@pytest.mark.long
def test_every_result_has_a_repr_of_one_short_line(results: dict[str, Any]) -> None:
    for name, result in results.items():
        if name[0].isupper():
            assert repr(result).startswith(f"{name}("), name
            assert "\n" not in repr(result) and len(repr(result)) <= 250, repr(result)
    assert repr(results["DiffReport"]).startswith("DiffReport(status='different', old=")
    assert "opsets=<2>" in repr(results["DiffReport"])


@pytest.mark.long
def test_to_dict_is_to_json(results: dict[str, Any]) -> None:
    for name, result in results.items():
        if name.endswith("Report") or name in ("Lowered", "Raised", "Verification"):
            assert result.to_dict() == result.to_json()


ROWS = {
    ("CheckReport", None): "findings",
    ("InspectReport", None): "caches",
    ("InspectReport", "operators"): "ops",
    ("InspectReport", "inputs"): "inputs",
    ("DiffReport", "nodes.added"): "nodes",
    ("VerifyReport", None): "outputs",
    ("LowerReport", None): "lowered",
    ("RaiseReport", None): "raised",
    ("BenchReport", None): "runs",
    ("InferReport", None): "unknown",
    ("EvalReport", None): "outputs",
}


class Pandas(types.ModuleType):
    """As much of pandas as there is to call."""

    json_normalize = staticmethod(lambda rows: rows)


@pytest.mark.long
@pytest.mark.parametrize(("name", "table"), [*ROWS], ids=str)
def test_a_table_becomes_a_frame(
    name: str, table: str | None, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", Pandas("pandas"))
    rows = results[name].to_frame(table)
    data = results[name].to_json()
    if name == "CheckReport":
        assert len(rows) == len(results[name]) and {"path", "code"} <= rows[0].keys()
    elif table == "operators":
        assert {row["op"]: row["count"] for row in rows} == data["ops"]
    elif table == "nodes.added":
        assert rows == data["nodes"]["added"]
    else:
        assert rows == data[ROWS[name, table]]


@pytest.mark.long
def test_real_pandas_has_a_column_for_each_fact(results: dict[str, Any]) -> None:
    pytest.importorskip("pandas")
    frame = results["InspectReport"].to_frame()
    assert len(frame) == 4 and {"past", "capacity", "in_place.possible"} <= {*frame.columns}


@pytest.mark.long
def test_what_is_no_table_and_what_needs_pandas_is_said(
    results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", Pandas("pandas"))
    with pytest.raises(kv.UsageError, match="has no table `cache`"):
        results["InspectReport"].to_frame("cache")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(kv.KvtoolError, match="needs pandas, and it is not installed") as caught:
        results["InspectReport"].to_frame()
    assert "pip install pandas" in (caught.value.help or "")


@pytest.mark.long
def test_results_in_memory_have_names_of_their_own(results: dict[str, Any]) -> None:
    path = results["path"]
    assert str(results["VerifyReport"]).startswith(f"equal: {path} and {path} (lowered) in ")
    assert results["DiffReport"].new == f"{path} (lowered)"
    assert kv.inspect(results["raised"]).model.path == f"{path} (lowered, raised)"
    inferred, _ = kv.infer(path)
    assert kv.diff(path, inferred).new == f"{path} (inferred)"
    assert kv.Decoder(results["lowered"]).prefill([[1, 2]]).shape[0] == 1


@each("name", [*kv.__all__, "print"])
def test_help_says_the_name_that_is_called(name: str) -> None:
    thing = getattr(kv, name)
    if inspect.isroutine(thing) or inspect.isclass(thing):
        assert thing.__name__ == name


INNER = {
    "CannotShrink": "verification runs the models as they are",
    "CodedError": "only those that derive from it are raised, and they stand here",
    "KernelError": "the program that runs the kernel names the node, in a `RunFailed`",
    "MalformedNode": "whoever looks at the node says where it stands",
    "MayBeEmpty": "as Unproven",
    "Problem": "the reader of the model names the tensor",
    "NoTwin": "verification compares without a twin",
    "Refusal": "the rewrite lists it in its report",
    "Unproven": "the rewrite lists it in its report",
    "_NotRun": "the proof says that the caches were not handed on, and why",
    "_Unfit": "the reader of the configuration names the key",
}
"""Errors that never leave the package, and what becomes of them."""


@pytest.mark.long
def test_every_error_that_can_be_raised_is_exported() -> None:
    found = {"KvtoolError"}
    package = Path(kv.__file__).parent
    derived = [
        (name, {*re.split(r"[\s,]+", bases)})
        for path in package.rglob("*.py")
        for name, bases in re.findall(
            r"^class (\w+)\((.*?)\):", path.read_text("utf-8"), re.M | re.S
        )
    ]
    while new := {name for name, bases in derived if bases & found} - found:
        found |= new
    assert found - INNER.keys() <= {*kv.__all__}
    assert INNER.keys() <= found
