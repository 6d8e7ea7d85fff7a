"""The decoders of real size: each kind, small, is a valid model that computes something sane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_kvtool as kv
from benchmarks.real_decoders.bound import Bound
from benchmarks.real_models import (
    CACHES,
    CONFIGURATIONS,
    DATA,
    DTYPES,
    QUANTISATIONS,
    Configuration,
    tiny,
    write,
)
from benchmarks.real_models.__main__ import main
from tests.grids import each, rest, thinned

NO_KERNEL = {"bf16": "MatMul(13)", "fp8": "TensorScatter(24)"}
"""What onnxruntime 1.31 lacks for a type; these run in the reference runtime."""

GIBIBYTES = {"qwen-0.5b-fp32": 2.35, "llama-1b-fp16": 2.30, "llama-7b-fp16": 12.55}


@pytest.mark.long
@pytest.mark.parametrize("name", thinned([*CONFIGURATIONS], 2))
def test_kind(name: str, tmp_path: Path) -> None:
    configuration = tiny(CONFIGURATIONS[name])
    path = write(configuration, tmp_path)
    onnx.checker.check_model(path, full_check=True)
    lacks = {configuration.dtype, configuration.caches} & NO_KERNEL.keys()
    runtimes = ("reference",) if lacks else ("reference", "onnxruntime")
    dims = {"batch": 2, "sequence_len": 3}
    logits = []
    for runtime in runtimes:
        found = kv.evaluate(path, random=True, dims=dims, steps=1, runtime=runtime)
        logits.append(found["logits"].astype(np.float32))
        assert logits[-1].shape[::2] == (2, configuration.vocabulary)
        assert np.isfinite(logits[-1]).all()
        assert 0.02 < logits[-1].std() < 5
    np.testing.assert_allclose(logits[0], logits[-1], atol=0.05 * logits[0].std())


def test_every_kind_has_a_name() -> None:
    found = CONFIGURATIONS.values()
    assert {c.dtype for c in found} == set(DTYPES)
    assert {c.quantisation for c in found} == set(QUANTISATIONS)
    assert {c.caches for c in found} == set(CACHES)


@pytest.mark.parametrize("name", GIBIBYTES)
def test_sparse_file_has_the_true_size_and_takes_no_disk(name: str, tmp_path: Path) -> None:
    write(CONFIGURATIONS[name], tmp_path, sparse=True)
    found = (tmp_path / DATA).stat()
    assert found.st_size / 2**30 == pytest.approx(GIBIBYTES[name], abs=0.01)
    assert found.st_blocks * 512 < 16 << 20


def test_seed_decides_the_weights(tmp_path: Path) -> None:
    configuration = tiny(CONFIGURATIONS["llama-1b-int4-zero-points"])
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        write(configuration, tmp_path / name, seed=seed)
    one, same, other = ((tmp_path / name / DATA).read_bytes() for name in ("one", "same", "other"))
    assert one == same
    assert one != other


@pytest.mark.exhaustive
def test_large_matrix_repeats_no_row(tmp_path: Path) -> None:
    """What is drawn is shorter than the largest matrices and repeated."""
    configuration = replace(tiny(CONFIGURATIONS["llama-1b-fp16"]), hidden=1024, vocabulary=8192)
    path = write(configuration, tmp_path)
    tensor = next(t for t in onnx.load(path).graph.initializer if "embed" in t.name)
    rows = onnx.numpy_helper.to_array(tensor)
    assert rows.size > 8_000_000
    assert len(np.unique(rows.view(np.uint8), axis=0)) == len(rows)


def test_command_line_overrides_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tiny", "--layers", "3", "--batch", "1", "--capacity", "31", "--std", "0.2"]
    main(["qwen-0.5b-fp32", f"{tmp_path}/model", *arguments])
    path = capsys.readouterr().out.strip()
    graph = onnx.load(path).graph
    cache = [dim.dim_value for dim in graph.input[2].type.tensor_type.shape.dim]
    assert cache == [1, 31, 2 * 16]
    assert sum(node.op_type == "Attention" for node in graph.node) == 3


@each(
    "wrong",
    [
        pytest.param({"dtype": "fp64"}, id="type"),
        pytest.param({"quantisation": "int2"}, id="quantisation"),
        pytest.param({"caches": "int4"}, id="caches"),
        pytest.param({"quantisation": "dq-int4", "hidden": 40}, id="width that blocks do not fit"),
    ],
)
def test_impossible_configuration(wrong: dict[str, str]) -> None:
    sizes = {"layers": 1, "hidden": 64, "heads": 4, "kv_heads": 2, "head_size": 16}
    with pytest.raises(ValueError, match=r"expected one of|must fit"):
        Configuration(**{**sizes, "intermediate": 96, "vocabulary": 160, **wrong})  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen-0.5b-fp32", *rest("llama-1b-fp16", "llama-1b-int4")])
def test_sessions_bound_in_place_decode_alike(name: str, tmp_path: Path) -> None:
    """What the benchmark times: a prompt, then tokens, native and lowered for a batch of one."""
    configuration = tiny(CONFIGURATIONS[name])
    native = write(configuration, tmp_path)
    lowered = tmp_path / "lowered.onnx"
    kv.save(kv.lower(native, opset=18, dims={"batch": 1}, verify=False)[0], lowered)
    sessions = [Bound(path, configuration) for path in (native, lowered)]
    for length, start in ((5, 0), (1, 5), (1, 6)):
        for one in sessions:
            one.bind(length)
            assert one.step(start) >= 0
        logits = [one.logits() for one in sessions]
        assert logits[0].shape == (1, length, configuration.vocabulary)
        np.testing.assert_allclose(logits[1], logits[0], atol=0.05 * logits[0].std())
