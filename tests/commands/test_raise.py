"""`kv.raise_` and what `kvtool raise` writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.lower import run as lower_file
from onnx_kvtool.commands.raise_ import failed, raise_, run
from onnx_kvtool.commands.requests import LowerRequest, RaiseRequest
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.symbolic.dimensions import dims_of

_TEXT = """<ir_version: 8, opset_import: ["": 18]>
    decoder (float[B,7,5] cache, float[B,L,5] update, int64[B] starts, int64[L] free,
             float[B,7,5] other) => (float[B,7,5] present, float[B,7,5] second) {
        last = Constant <value_ints = [-1]> () zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> () first = Constant <value_ints = [0]> ()
        shape = Shape <start = 1, end = 2> (update) length = Squeeze (shape)
        rows = Range (zero, length, one) line = Unsqueeze (rows, first)
        column = Unsqueeze (starts, last) positions = Add (column, line)
        spread = Unsqueeze (positions, last) whole = Shape (update) index = Expand (spread, whole)
        present = ScatterElements <axis = 1> (cache, index, update)
        free1 = Unsqueeze (free, last)
        c = Transpose <perm = [1, 0, 2]> (other) u = Transpose <perm = [1, 0, 2]> (update)
        w = ScatterND (c, free1, u)
        second = Transpose <perm = [1, 0, 2]> (w)
    }"""
"""One update that is proven and one that is so only if positions are assumed to count up."""


def _model(text: str = _TEXT) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        if node.op_type.startswith("Scatter"):
            node.name = f"write_{node.output[0]}"
    return model


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(_model(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.long
def test_the_proven_update_is_raised_and_the_other_one_stays(path: str) -> None:
    report = run(RaiseRequest(path))
    (done,), (refusal,) = report.raised, report.refused
    assert (done.location.node, done.pattern, done.write_indices) == (
        "write_present",
        "scatter_elements",
        "starts",
    )
    assert (refusal.location.node, refusal.code) == ("write_w", "free-positions")
    assert refusal.assumption == "contiguous:free"
    assert report.verification.status == "equal"
    assert report.output == path.replace(".onnx", ".raised.onnx")
    assert (report.source_opset, report.target_opset, report.ir_version) == (18, 24, 12)
    written = onnx.load(report.output)
    assert [n.op_type for n in written.graph.node].count("TensorScatter") == 1
    onnx.checker.check_model(written, full_check=True)


FAILING = _TEXT.replace("=> (", "=> (int64[3] far, ").replace(
    "second = Transpose",
    """table = Constant <value_ints = [1, 2, 3, 4, 5]> ()
        beyond = Constant <value_ints = [7, 7, 7]> ()
        far = Gather (table, beyond) second = Transpose""",
)
"""The model fails whatever it is fed, as it reads row 7 of a table of 5."""


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
@pytest.mark.parametrize("verify", [None, False])
def test_what_fails_on_every_input_is_written_without_a_proof_alone(tmp_path, verify) -> None:
    onnx.save(_model(FAILING), tmp_path / "m.onnx")
    request = RaiseRequest(str(tmp_path / "m.onnx"), verify=verify)
    report = run(request)
    assert len(report.raised) == 1
    assert (report.output is not None) is (verify is False)
    assert failed(report, request) is (verify is None)
    if verify is None:
        assert report.verification.status == "skipped"
        *_, last = str(report).splitlines()
        assert last.startswith("warning: nothing was proven: the source does not run on drawn inp")
        assert "`--dim`" in last and "`--no-verify`" in last
        with pytest.raises(Refused, match="not proven: the source does not run"):
            raise_(_model(FAILING))


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
def test_strict_rejects_what_cannot_be_run(tmp_path: Path) -> None:
    onnx.save(_model(FAILING), tmp_path / "m.onnx")
    request = LowerRequest(str(tmp_path / "m.onnx"), opset=16)
    assert lower_file(request).output is not None
    report = lower_file(request.replace(strict=True, output=str(tmp_path / "strict.onnx")))
    assert report.output is None and report.verification.fails
    assert not (tmp_path / "strict.onnx").exists()
    *_, last = str(report).splitlines()
    assert last.startswith("warning: nothing was proven: the source does not run on drawn inputs")


@pytest.mark.long
def test_the_report_says_what_was_assumed(path: str) -> None:
    report = run(RaiseRequest(path, assume=("contiguous",)))
    assert [done.assumed for done in report.raised] == [(), ("contiguous",)]
    assert report.raised[1].proof[-1] == "assumed: contiguous"
    assert report.verification.status == "equal"


@pytest.mark.long
def test_the_json_has_the_keys_of_the_contract(path: str) -> None:
    found = run(RaiseRequest(path, dry_run=True)).to_json()
    assert list(found)[:4] == ["model", "output", "source_opset", "target_opset"]
    assert {"raised", "refused", "verification"} <= set(found)
    (done,), (refusal,) = found["raised"], found["refused"]
    assert {
        key: value for key, value in done.items() if key not in ("proof", "pattern", "assumed")
    } == {
        "graph": "decoder",
        "node": "write_present",
        "index": 13,
        "op": "ScatterElements",
        "axis": 1,
        "mode": "linear",
        "past": "cache",
        "update": "update",
        "write_indices": "starts",
        "present": "present",
    }
    assert all(isinstance(sentence, str) for sentence in done["proof"])
    (cache,) = found["caches"]
    assert (cache["past"], cache["present"], cache["mode"]) == ("cache", "present", "linear")
    assert set(cache) == {"past", "present", "capacity", "mode", "from"}
    assert (found["attention"], found["contrib"], found["inputs_added"]) == ([], [], [])
    place = {"graph", "node", "index", "op", "value"}
    reason = {"reason_code", "reason", "help", "severity", "blocks", "lowest_opset", "assumption"}
    assert set(refusal) == place | reason


@pytest.mark.long
def test_every_update_can_be_required(path: str) -> None:
    report = run(RaiseRequest(path, require_all=True))
    assert report.output is None
    assert os.listdir(Path(path).parent) == ["m.onnx"]
    with pytest.raises(Refused, match="1 refusal"):
        raise_(path, require_all=True)
    assert run(RaiseRequest(path, require_all=True, assume=("contiguous",))).output is not None


def test_nothing_to_raise_writes_nothing(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 11]>
        decoder (float[B,7] x) => (float[B,7] y) { y = Relu (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    report = run(RaiseRequest(str(tmp_path / "m.onnx"), output=str(tmp_path / "out.onnx")))
    assert (report.raised, report.refused, report.output) == ([], [], None)
    assert (report.source_opset, report.target_opset) == (11, 11)
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_model_that_cannot_come_to_the_opset_is_refused_as_a_whole(tmp_path: Path) -> None:
    model = _model()
    model.graph.node.insert(0, onnx.helper.make_node("Bogus", ["cache"], ["unknown"], name="odd"))
    model.graph.node.append(
        onnx.helper.make_node("Upsample", ["cache", "scales"], ["up"], name="old")
    )
    model.graph.input.append(onnx.helper.make_tensor_value_info("scales", 1, [3]))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    report = run(RaiseRequest(str(path), verify=False))
    assert report.raised == []
    assert "old" in [problem.location.node for problem in report.blocked]
    assert report.output is None


@pytest.mark.long
def test_the_model_that_is_given_stays_as_it_was() -> None:
    source = ir.from_proto(_model())
    before = ir.to_proto(source)
    raised, report = kv.raise_(source, assume=["contiguous"])
    assert ir.to_proto(source) == before
    assert len(report.raised) == 2
    assert raised.opset_imports[""] == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"opset": 23}, "`opset` is 23", id="an opset without TensorScatter"),
        pytest.param({"assume": ["hope"]}, "is no assumption", id="no assumption"),
        pytest.param({"assume": ["in-range:nobody"]}, "names no value", id="no value"),
        pytest.param({"dims": {"Q": 2}}, "no input has a dimension", id="no dimension"),
    ],
)
def test_wrong_use_is_refused(path: str, arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        raise_(path, **arguments)


@pytest.mark.parametrize("asked", [{"dims": {"N": 3}}, {"static": True}], ids=["dims", "static"])
def test_a_note_says_that_no_size_is_fixed_where_nothing_is_raised(asked: Any) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[N,5] x) => (float[N,5] y) { y = Neg (x) }'
    )
    result, report = raise_(model, **asked)
    assert dims_of(result.graph.inputs[0]) == ("N", 5)
    assert any(note.startswith("nothing was raised, so that no size is") for note in report.notes)
