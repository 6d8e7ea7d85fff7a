"""`kvtool bench --profile`: where a step goes."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from onnx_kvtool.commands import bench
from onnx_kvtool.decoding.profile import _summed, parts_of
from onnx_kvtool.model_io.model_source import open_model

pytestmark = pytest.mark.long

MODEL = "fixtures/models/native/llama_static.onnx"
LAYER = """<ir_version: 11, opset_import: ["": 24]>
    g (float[2, 3, 2] x, float[2, 7, 2] past, int64[2] s) => (float[2, 3, 2] y, float[2, 7, 2] now)
    <float[2, 2] w = {1, 2, 3, 4}> {
        n = Abs (x)
        wt = Transpose (w)
        k = MatMul (n, wt)
        now = TensorScatter <axis = 1> (past, k, s)
        kt = Transpose <perm = [0, 2, 1]> (now)
        scores = MatMul (n, kt)
        p = Softmax (scores)
        a = MatMul (p, now)
        o = MatMul (a, w)
        y = Add (o, x) }"""
PARTS = {
    "Abs": ["rest"],
    "Transpose": ["rest", "attention"],
    "MatMul": ["projections", "attention", "attention", "projections"],
    "TensorScatter": ["cache update"],
    "Softmax": ["attention"],
    "Add": ["rest"],
}


def test_each_node_belongs_to_one_part() -> None:
    loaded = open_model(onnx.parser.parse_model(LAYER))
    parts = parts_of(loaded)
    found: dict[str, list[str]] = {}
    for node in loaded.graph:
        found.setdefault(node.op_type, []).append(parts[node.name or ""])
    assert found == PARTS


def test_steps_are_summed_without_the_prompt() -> None:
    def node(name: str, op: str, ts: int, dur: int) -> dict[str, object]:
        args = {"op_name": op}
        return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": args}

    events = [
        {"cat": "Session", "name": "model_run", "ts": ts, "dur": 50} for ts in (100, 200, 300, 400)
    ]
    events += [node("m", "MatMul", 110, 999), node("m", "MatMul", 210, 20)]
    events += [node("m", "MatMul", 310, 40), node("m", "MatMul", 410, 9000)]  # was held up
    events += [node("fused", "GroupQueryAttention", ts, 10) for ts in (230, 330, 430)]
    events += [node("in_a_loop", "Mul", ts, 3) for ts in (240, 245, 340, 345, 440, 445)]
    profile = _summed(events, {"m": "projections"}, "m.onnx")
    assert {p.part: round(p.seconds * 1e6) for p in profile.parts} == {
        "attention": 10, "cache update": 0, "projections": 40, "rest": 6,
    }  # fmt: skip
    assert sum(p.share for p in profile.parts) == pytest.approx(1)
    assert [(one.op, one.count) for one in profile.operators] == [
        ("MatMul", 1),
        ("GroupQueryAttention", 1),
        ("Mul", 2),
    ]


@pytest.mark.parametrize(
    ("op", "part"),
    [
        ("MatMulNBits", "projections"),
        ("MatMulNBitsMlp", "projections"),
        ("DynamicQuantizeMatMul", "projections"),
        ("FusedGemm", "projections"),
        ("FusedMatMul", "attention"),
        ("GemmaRotaryEmbedding", "rest"),
    ],
)
def test_an_operator_that_onnxruntime_made_belongs_to_a_part(op: str, part: str) -> None:
    run = {"cat": "Session", "name": "model_run", "ts": 100, "dur": 50}
    made = {"cat": "Node", "name": "f_kernel_time", "ts": 110, "dur": 9, "args": {"op_name": op}}
    profile = _summed([run, made], {}, "m.onnx")
    assert [p.part for p in profile.parts if p.seconds] == [part]


@pytest.mark.exhaustive
def test_the_report_has_models_side_by_side(
    kvtool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kvtool("lower", root / MODEL, "-o", tmp_path / "low.onnx", "--no-verify")
    paths = (root / MODEL, tmp_path / "low.onnx")
    reports, run = [], bench.run
    monkeypatch.setattr(bench, "run", lambda *given: reports.append(run(*given)) or reports[0])
    work = ("--prompt", "3", "--tokens", "4", "--rounds", "1", "--profile")
    page = kvtool("bench", *paths, *work, "--format", "html").stdout
    (report,) = reports
    shown = report.to_json()
    assert [p["model"] for p in shown["profile"]] == list(map(str, paths))
    for profile in shown["profile"]:
        taken = {part["part"]: part["seconds"] for part in profile["parts"]}
        assert all(seconds > 0 for seconds in taken.values()), taken
        assert sum(part["share"] for part in profile["parts"]) == pytest.approx(1)
    first, second = ({o["op"] for o in p["operators"]} for p in shown["profile"])
    assert "TensorScatter" in first - second and "ScatterND" in second
    assert page.startswith("<!DOCTYPE html>") and page.count('title="cache update: ') == 2
    assert "cache update" in str(report) and "profile:" in str(report)
