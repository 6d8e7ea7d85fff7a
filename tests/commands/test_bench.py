"""Decoders in turns: what is said of each, and of one that does not get to the end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_kvtool as kv
from onnx_kvtool.decoding.report import BenchReport, BenchRun, Ratio, StepSeconds, Workload
from onnx_kvtool.decoding.worker import Worker
from tests.grids import each

GROWING = "fixtures/growing/llama_eager_dynamo18.onnx"
LLAMA = "fixtures/models/native/llama_static.onnx"
BROKEN = "fixtures/models/native/BROKEN_gemma_static_raw_noopt.onnx"


@pytest.mark.long
def test_a_growing_model_and_its_fixed_form(root: Path, tmp_path: Path, kvtool) -> None:
    raised, _ = kv.raise_(root / GROWING, capacity=24, verify=False)
    kv.save(raised, tmp_path / "fixed.onnx")
    paths = str(root / GROWING), str(tmp_path / "fixed.onnx")
    work = ["--prompt=3", "--tokens=4", "--context=9", "--rounds=2", "--threads=1"]
    result = kvtool("bench", *paths, *work, "--format=json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert [run["model"] for run in answer["runs"]] == list(paths)
    assert [(run["form"], run["in_place"]) for run in answer["runs"]] == [
        ("growing", False),
        ("fixed", True),
    ]
    for run in answer["runs"]:
        step = run["step_seconds"]
        assert 0 < step["min"] <= step["median"] <= step["max"]
        assert run["first_token_seconds"] > 0
        assert run["tokens_per_second"] == pytest.approx(1 / step["median"])
        assert run["failure"] is None
    (ratio,) = answer["ratios"]
    first, second = (run["step_seconds"]["median"] for run in answer["runs"])
    assert (ratio["model"], ratio["step"]) == (paths[1], pytest.approx(second / first))
    assert answer["same_tokens"] is True
    assert "profile" not in answer
    assert answer["workload"] == {
        "prompt": 3, "tokens": 4, "context": 9, "batch": 1, "threads": 1, "rounds": 2, "seed": 0,
    }  # fmt: skip


@pytest.mark.exhaustive
def test_a_model_that_does_not_load_stands_beside_one_that_runs(root: Path, kvtool) -> None:
    result = kvtool("bench", str(root / LLAMA), str(root / BROKEN), "--prompt", "3", "--tokens=2")
    assert result.exit_code == 1
    assert f"failed: {root / BROKEN}: onnxruntime" in result.stdout
    assert "tokens:" not in result.stdout


@pytest.mark.exhaustive
def test_models_in_memory_and_one_without_room(root: Path) -> None:
    message = onnx.load(root / LLAMA)
    report = kv.bench([message, kv.load(root / LLAMA)], prompt=3, tokens=2, rounds=1, batch=2)
    assert [run.failure for run in report.runs] == [None, None]
    assert np.shape(report.runs[0].chosen) == (2, 2)
    full = kv.bench(message, prompt=30, tokens=4, rounds=2)
    assert full.failed
    assert (full.runs[0].failure or "").endswith("new ones; use a shorter prompt or fewer steps")
    assert "`key_cache.0` has 32 rows" in str(full)


@pytest.mark.exhaustive
def test_a_process_that_ends_is_a_failure(root: Path) -> None:
    worker = Worker(str(root / LLAMA), "a model", capacity=9, threads=1, dims={})
    worker._process.kill()
    with pytest.raises(kv.KvtoolError, match=r"that ran `a model` ended with (-9|1)$"):
        worker.round(np.array([[1]]), 1, 2)
    worker.close()


def test_where_no_process_can_be_started_the_report_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(root / "no-python"))
    report = kv.bench(root / LLAMA, prompt=3, tokens=2, rounds=1)
    (failure,) = [run.failure for run in report.runs]
    assert failure == f"no process can be started to run `{root / LLAMA}`: {os.strerror(2)}"


@pytest.mark.exhaustive
def test_a_model_that_does_not_load_leaves_no_process(root: Path, monkeypatch) -> None:
    closed = []
    close = Worker.close
    monkeypatch.setattr(Worker, "close", lambda self: (closed.append(self), close(self)))
    with pytest.raises(kv.KvtoolError, match="cannot load the model"):
        Worker(str(root / BROKEN), "a model", capacity=9, threads=1, dims={})
    (worker,) = closed
    assert worker._process.returncode is not None


WRONG = [
    ({"prompt": 0}, "`prompt` is 0"),
    ({"tokens": 1}, "`tokens` is 1, expected at least 2"),
    ({"prompt": 5, "context": 4}, "`context` is 4, expected at least 5"),
    ({"batch": 0}, "`batch` is 0"),
    ({"rounds": 0}, "`rounds` is 0"),
    ({"threads": 0}, "`threads` is 0"),
    ({"dims": {"x": 0}}, "the size of `x`"),
]


@each(("wrong", "message"), WRONG)
def test_work_that_is_none_is_wrong_usage(root: Path, wrong, message: str) -> None:
    with pytest.raises(kv.UsageError, match=message):
        kv.bench(root / LLAMA, **wrong)


def test_what_cannot_be_read_is_not_run(tmp_path: Path, kvtool) -> None:
    result = kvtool("bench", str(tmp_path / "none.onnx"))
    assert result.exit_code == 3
    with pytest.raises(kv.UsageError, match="there is no model to run"):
        kv.bench([])


def test_a_model_that_goes_before_it_is_profiled_has_run(root: Path, monkeypatch) -> None:
    def gone(*_: object) -> None:
        raise kv.UnreadableModel("`m.onnx` does not exist")

    monkeypatch.setattr(Worker, "profile", gone)
    report = kv.bench(root / LLAMA, prompt=2, tokens=2, rounds=1, profile=True)
    assert report.runs[0].failure == "`m.onnx` does not exist"
    assert report.runs[0].steps


def test_numbers_are_medians_and_ratios_to_the_first() -> None:
    work = Workload(prompt=3, tokens=4, context=3, batch=2, threads=None, rounds=3, seed=0)
    took = (3.0, 1.0, 2.0), (0.5, 0.1, 0.3), 1000
    first = BenchRun("a", "growing", False, *took, ((7,),), batch=2)
    second = BenchRun("b", "fixed", True, (1.0,), (0.15,), 500, ((8,),))
    failed = BenchRun("c", failure="no")
    report = BenchReport(work, "onnxruntime 1", (first, second, failed))
    assert first.step_seconds == StepSeconds(0.1, 0.3, 0.5)
    assert first.tokens_per_second == pytest.approx(2 / 0.3)
    assert report.ratios == (
        Ratio("b", step=0.5, first_token=0.5, peak=0.5),
        Ratio("c", step=None, first_token=None, peak=None),
    )
    assert report.failed
    assert not report.same_tokens
    assert "tokens: not the same" in str(report)
