"""Static models for a prompt and for a token, driven as one decoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import onnx_kvtool as kv
from onnx_kvtool.cli.app import app
from onnx_kvtool.decoding import decoder
from onnx_kvtool.decoding.bound import BoundSession
from onnx_kvtool.runtime.sessions import Array
from tests.grids import part, thinned
from tests.test_growing_models import others_of

pytestmark = pytest.mark.long

ROWS, PREFILL = 19, 7  # the tail of a full prompt has no room for seven

ROOT = Path(__file__).resolve().parents[2]

PAIRS = {
    "llama": "growing/llama_eager_dynamo18",
    "native": "models/native/llama_static",
    "bloom": "growing/bloom__optimum",
    "gemma3": "growing/gemma3__optimum_op18",
    "qwen2": "growing/qwen2__dynamo_op18",
    "float16": "growing/qwen2_eager_fp16__ts_op17",
}


@pytest.fixture(
    scope="module",
    params=[
        name if name == "llama" else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in PAIRS
    ],
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return the model, and the directory of its pair."""
    source = ROOT / f"fixtures/{PAIRS[request.param]}.onnx"
    directory = tmp_path_factory.mktemp("pair") / request.param
    how = ["lower", "--opset", "18"]
    if request.param != "native":
        how = ["raise", "--capacity", str(ROWS)]
    how += ["--static", "--phases", f"prefill={PREFILL},decode=1", "--no-verify"]
    result = CliRunner().invoke(app, [*how, str(source), "-o", str(directory)])
    assert result.exit_code == 0, result.stderr
    return source, directory


def models_in(directory: Path) -> tuple[Path, ...]:
    return tuple(sorted(directory.glob("*.onnx")))


def runs(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Array]]:
    """Return the arrays of every run of a decoder from now on."""
    seen: list[Mapping[str, Array]] = []
    run = BoundSession.run

    def noted(self, arrays, buffers, into):
        seen.append(arrays)
        return run(self, arrays, buffers, into)

    monkeypatch.setattr(BoundSession, "run", noted)
    return seen


def test_prompts_of_all_lengths_and_the_steps_behind_them_have_the_logits_of_the_source(
    pair: tuple[Path, Path],
) -> None:
    source, directory = pair
    one, other = (kv.Decoder(m, threads=1) for m in (source, models_in(directory)))
    assert (other.form, other.in_place) == ("fixed", True)
    rows = ROWS if one.form == "growing" else 32
    ids = np.random.default_rng(0).integers(0, 60, (1, rows))
    close = 2e-2 if "fp16" in source.name else 2e-5
    for length in range(1, rows + 1):
        fed = [
            ids[:, :length],
            *(ids[:, n : n + 1] for n in range(length, min(length + 3, rows))),
        ]
        for number, new in enumerate(fed):
            found, expected = (d.step(new) if number else d.prefill(new) for d in (other, one))
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=close, atol=close)
            assert one.length == other.length == length + number
        assert other.length <= rows
    with pytest.raises(kv.UsageError, match=f"has {rows} rows, {rows} of them in use"):
        other.step([1])


QWEN = ROOT / "fixtures/growing/qwen3__dynamo_op18.onnx"


def static(tokens: int, rows: int = ROWS) -> ir.Model:
    dims = {"s14": 1, "s87": 1, "s0": tokens}
    return kv.raise_(QWEN, capacity=rows, static=True, dims=dims, verify=False)[0]


@pytest.fixture(scope="module")
def qwen() -> tuple[Path, list[ir.Model]]:
    return QWEN, [static(tokens) for tokens in (PREFILL, 1)]


LENGTHS = {
    1: [(1, 1)],
    2: [(7, 2)],
    7: [(7, 7)],
    8: [(7, 7), (1, 8)],
    12: [(7, 7), (7, 12)],
    14: [(7, 7), (7, 14)],
    17: [(7, 7), (7, 14), (1, 15), (1, 16), (1, 17)],  # there is no room for 14 + 7
    19: [(7, 7), (7, 14), *((1, n) for n in range(15, 20))],
}
"""Prompts; of each run the ids that it takes, and the ones of its mask."""


@pytest.mark.parametrize("length", thinned([*LENGTHS], 2))
def test_a_prompt_is_cut_and_its_rest_filled_up_where_there_is_room(
    qwen, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    decoder = kv.Decoder(qwen[1], threads=1)
    seen = runs(monkeypatch)
    decoder.prefill(np.arange(length))
    found = [(a["input_ids"].shape[1], int(a["attention_mask"].sum())) for a in seen]
    assert found == LENGTHS[length]
    ones = [mask.tolist() for mask in (a["attention_mask"][0] for a in seen)]
    assert all(mask == sorted(mask, reverse=True) for mask in ones)
    fed = [token for a in seen for token in a["input_ids"][0]]
    assert [token for token in fed if token][: length - 1] == list(range(1, length))


def test_several_tokens_in_a_step_and_tokens_that_are_generated(qwen) -> None:
    source, made = qwen
    one, other = kv.Decoder(source, threads=1), kv.Decoder((made[1], made[0]), threads=1)
    prompt = np.array([[5, 3, 7, 11, 2]])
    expected = one.generate(prompt, steps=14)
    assert other.generate(prompt, steps=14).tolist() == expected.tolist()
    other.prefill(prompt)
    logits = other.step(expected[:, :9])
    assert logits[0].argmax(axis=-1).tolist() == expected[0, 1:10].tolist()


def test_positions_that_are_given_go_with_the_parts_of_a_prompt(qwen) -> None:
    source, made = qwen
    ids = np.arange(12)[None]
    positions = {"position_ids": (np.arange(12) // 2)[None]}
    decoders = [kv.Decoder(m, threads=1) for m in (source, made)]
    found = [[d.prefill(ids, positions)[0, -1], d.step([3])[0, -1]] for d in decoders]
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
    with pytest.raises(kv.UsageError, match=r"of shape \(1, 12\), expected \(1, 11\)"):
        decoders[1].prefill(ids[:, :11], positions)


BLOCKS = [
    pytest.param("growing/llama_eager_dynamo18", True, {}, [5, 5, 2], id="raised"),
    pytest.param("growing/qwen3__dynamo_op18", True, {"position_ids"}, [5, 5, 2], id="positions"),
    pytest.param("growing/llama__optimum", False, {}, [12], id="growing"),
    pytest.param("growing/bart__dynamo_op18", True, {"encoder_hidden_states"}, [12], id="states"),
    pytest.param("models/native/llama_static", False, {}, [5, 5, 2], id="native"),
    pytest.param("models/genai/genai_llama_fp32_cpu", False, {}, [12], id="GroupQueryAttention"),
]


@part(2)
@pytest.mark.parametrize(("name", "is_raised", "given", "lengths"), BLOCKS)
def test_a_long_prompt_goes_in_blocks_into_linear_caches(
    monkeypatch: pytest.MonkeyPatch, name: str, is_raised: bool, given, lengths: list[int]
) -> None:
    source, ids = ROOT / f"fixtures/{name}.onnx", np.arange(24).reshape(2, 12)
    positions = np.arange(12) // 2 + np.zeros((2, 1), np.int64)
    others = others_of(source.stem, 2) if "growing" in name else {}
    inputs = {key: {"position_ids": positions, **others}[key] for key in given}
    model = kv.raise_(source, capacity=ROWS, verify=False)[0] if is_raised else source
    expected = kv.Decoder(source, threads=1).prefill(ids, inputs)
    seen = runs(monkeypatch)
    monkeypatch.setattr(decoder, "_BLOCK", 5)
    logits = kv.Decoder(model, threads=1).prefill(ids, inputs)
    assert [a["input_ids"].shape[1] for a in seen] == lengths
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("is_causal", "runs_of"), [(1, 2), (0, 1)])
def test_a_prompt_whose_tokens_see_later_ones_goes_in_whole(
    monkeypatch: pytest.MonkeyPatch, is_causal: int, runs_of: int
) -> None:
    model = onnx.load(ROOT / "fixtures/models/native/llama_static.onnx")
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "is_causal":
                attribute.i = is_causal
    seen = runs(monkeypatch)
    monkeypatch.setattr(decoder, "_BLOCK", 5)
    kv.Decoder(model, threads=1).prefill(np.arange(7))
    assert len(seen) == runs_of


def test_models_that_cannot_hand_on_their_caches_are_no_pair(qwen) -> None:
    with pytest.raises(kv.UsageError, match="the models have different caches"):
        kv.Decoder((qwen[1][0], static(1, ROWS + 1)))
    with pytest.raises(kv.UsageError, match="there is no model"):
        kv.Decoder(())


def test_a_rest_without_room_needs_a_model_for_one_token(qwen) -> None:
    decoder = kv.Decoder([qwen[1][0]], threads=1)
    assert decoder.prefill(np.arange(10)).shape[1] == 10
    with pytest.raises(kv.UsageError, match="5 new tokens, and the model takes `7` at a time"):
        decoder.prefill(np.arange(19))


def test_rows_that_go_round_are_not_filled_up(qwen, monkeypatch: pytest.MonkeyPatch) -> None:
    """What filled up a prompt would take the place of the oldest rows."""
    circular = [onnx.ModelProto() for _ in qwen[1]]
    for proto, model in zip(circular, qwen[1], strict=True):
        proto.CopyFrom(_circular(model))
    decoder = kv.Decoder(circular, threads=1)
    seen = runs(monkeypatch)
    decoder.prefill(np.arange(10))
    assert [a["input_ids"].shape[1] for a in seen] == [7, 1, 1, 1]


def _circular(model: object) -> onnx.ModelProto:
    assert isinstance(model, ir.Model)
    proto = ir.to_proto(model)
    for node in proto.graph.node:
        if node.op_type == "TensorScatter":
            kept = [a for a in node.attribute if a.name != "mode"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("mode", "circular")])
    return proto


@pytest.mark.exhaustive
def test_the_bench_drives_a_directory(pair: tuple[Path, Path]) -> None:
    source, directory = pair
    report = kv.bench(
        [source, directory], prompt=9, tokens=4, rounds=1, threads=1, profile=True, batch=1
    )
    assert [run.failure for run in report.runs] == [None, None]
    assert report.same_tokens
    assert [run.form for run in report.runs][1] == "fixed"
    assert [sum(part.seconds for part in p.parts) > 0 for p in report.profile] == [True, True]


def test_a_directory_without_a_model_is_refused(kvtool, tmp_path: Path) -> None:
    result = kvtool("bench", tmp_path)
    assert result.exit_code == 3
    assert "is a directory without a model" in result.stderr
