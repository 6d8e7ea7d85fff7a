"""Decoders of every form choose the tokens that they choose without any cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_kvtool as kv
from onnx_kvtool.decoding.choice import choosing
from tests.grids import part

PROMPTS = np.array([[5, 3, 7, 11], [1, 2, 4, 9]])

MODELS = [
    ("models/native/llama_static", "fixed", True),
    ("models/native/llama_static_fp16", "fixed", True),
    ("models/native/gemma4_hybrid_static", "growing", False),
    ("models/genai/genai_llama_fp32_cpu", "contrib", True),
    ("models/torch_static/hf/llama_static__ts_op17", "fixed", True),
    ("models/torch_static/hf/llama_static__dynamo_op18", "fixed", False),
    ("models/concat/gpt2_dynamic__ts_op17", "growing", False),
    ("growing/llama__optimum", "growing", False),
    ("growing/llama_eager_fp16__dynamo_op18", "growing", False),
    ("growing/gemma3_rolling__dynamo_op18", "growing", False),
    ("growing/mistral_rolling__dynamo_op18", "growing", False),
    ("growing/opt__optimum_op18", "growing", False),
    ("growing/bloom__optimum", "growing", False),
]


@part(2)
@pytest.mark.long
@pytest.mark.parametrize(("name", "form", "in_place"), MODELS, ids=str)
def test_steps_choose_what_a_prompt_of_all_tokens_chooses(root: Path, name, form, in_place) -> None:
    decoder = kv.Decoder(root / f"fixtures/{name}.onnx", threads=1)
    assert (decoder.form, decoder.in_place) == (form, in_place)
    one_by_one = "torch_static" in name
    prompts = PROMPTS[:1, :3] if one_by_one else PROMPTS
    chosen = decoder.generate(prompts, steps=5)
    assert chosen.shape == (len(prompts), 5)
    assert decoder.length == prompts.shape[1] + 4
    whole = prompts
    for place in range(5 if not one_by_one else 1):  # those take prompts of three tokens alone
        logits = decoder.prefill(whole)
        assert decoder.length == whole.shape[1]
        assert logits[:, -1].argmax(axis=-1).tolist() == chosen[:, place].tolist()
        whole = np.concatenate([whole, chosen[:, place : place + 1]], axis=1)


PAIRS = [
    ("growing/llama_eager_dynamo18", {}),
    ("growing/qwen2__dynamo_op18", {"attention": "sliced"}),
    ("models/genai/genai_llama_fp32_cpu", {}),
    pytest.param("growing/gptj__optimum", {"attention": "keep"}, marks=pytest.mark.exhaustive),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "how"), PAIRS, ids=str)
def test_the_fixed_form_chooses_the_same_tokens(root: Path, name, how) -> None:
    model = root / f"fixtures/{name}.onnx"
    raised, _ = kv.raise_(model, capacity=16, verify=False, **how)
    fixed = kv.Decoder(raised, threads=1)
    expected = kv.Decoder(model, threads=1).generate(PROMPTS, steps=12)
    assert fixed.in_place
    assert fixed.generate(PROMPTS, steps=12).tolist() == expected.tolist()
    with pytest.raises(kv.UsageError, match="has 16 rows, 15 of them in use, and there are 2 new"):
        fixed.step(PROMPTS[:, :2])


@pytest.mark.exhaustive
@pytest.mark.long
def test_rows_that_were_filled_in_are_the_same_in_every_form(root: Path) -> None:
    model = root / "fixtures/growing/llama__optimum.onnx"
    raised, _ = kv.raise_(model, capacity=32, verify=False)
    logits = []
    for source in (model, raised):
        decoder = kv.Decoder(source, threads=1)
        decoder.prefill(PROMPTS)
        decoder.fill(20)
        logits.append(decoder.step(PROMPTS[:, 0]))
        assert decoder.length == 21
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_capacity_that_the_model_leaves_open(root: Path) -> None:
    model = root / "fixtures/growing/llama__optimum.onnx"
    raised, _ = kv.raise_(model, capacity="rows", verify=False)
    expected = kv.Decoder(model, threads=1).generate(PROMPTS, steps=6)
    for capacity in (None, 9, 40):
        decoder = kv.Decoder(raised, capacity=capacity, threads=1)
        assert decoder.generate(PROMPTS, steps=6).tolist() == expected.tolist()
    with pytest.raises(kv.UsageError, match="has 8 rows"):
        kv.Decoder(raised, capacity=8, threads=1).generate(PROMPTS, steps=6)


LLAMA = "fixtures/models/native/llama_static.onnx"

WRONG = [
    pytest.param(lambda d: d.step([1]), "there is no prompt yet", id="a step without a prompt"),
    pytest.param(lambda d: d.generate([[1.5]], 2), "the tokens are float64", id="no integers"),
    pytest.param(lambda d: d.generate([[]], 2), "of shape (1, 0)", id="an empty prompt"),
    pytest.param(lambda d: d.generate([[[1]]], 2), "of shape (1, 1, 1)", id="too many axes"),
    pytest.param(lambda d: d.generate([1], 0), "`steps` is 0", id="no step"),
    pytest.param(lambda d: d.generate([[1, 2], [3]], 2), "different lengths", id="ragged prompts"),
    pytest.param(lambda d: d.generate([1], 2, temperature=-1), "`temperature` is -1", id="below 0"),
    pytest.param(lambda d: d.generate([1], 2, temperature=1, top_k=0), "`top_k` is 0", id="top 0"),
    pytest.param(
        lambda d: d.generate([1], 2, temperature=1, top_p=0), "`top_p` is 0", id="no odds"
    ),
    pytest.param(lambda d: d.generate([1], 2, top_p=0.9), "temperature 0", id="nothing drawn"),
    pytest.param(lambda d: d.generate([1], 2, seed=-1), "`seed` is -1", id="a negative seed"),
    pytest.param(lambda d: d.generate([1], 40), "has 32 rows, 32 of them", id="a full cache"),
    pytest.param(lambda d: d.prefill([1] * 33), "and there are 33 new ones", id="a long prompt"),
    pytest.param(lambda d: (d.prefill([1]), d.fill(0)), "`length` is 0", id="fewer than there are"),
    pytest.param(lambda d: d.fill(3), "there is no prompt yet", id="nothing to fill behind"),
    pytest.param(
        lambda d: (d.prefill([1]), d.step([1, 2])), "tokens of shape (2, 1)", id="another batch"
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_cannot_be_meant_is_wrong_usage(root: Path, call, message: str) -> None:
    decoder = kv.Decoder(root / LLAMA, threads=1)
    with pytest.raises(kv.UsageError) as caught:
        call(decoder)
    assert message in str(caught.value)


@pytest.mark.long
def test_a_sequence_ends_at_a_stop_token_and_the_batch_with_the_last_of_them(root: Path) -> None:
    decoder = kv.Decoder(root / LLAMA, threads=1)
    whole = decoder.generate(PROMPTS, steps=9)
    one, two = ([int(n) for n in row] for row in whole)
    ends = next(n for n in one[1:] if n not in two), next(n for n in two[2:] if n not in one)
    at = one.index(ends[0]), two.index(ends[1])
    found = decoder.generate(PROMPTS, steps=9, stop=ends)
    assert found.shape == (2, max(at) + 1)
    for row, place, expected in zip(found.tolist(), at, (one, two), strict=True):
        assert row[: place + 1] == expected[: place + 1]
        assert set(row[place:]) == {expected[place]}
    assert decoder.length == PROMPTS.shape[1] + max(at)  # nothing ran behind the end
    assert decoder.generate(PROMPTS[0], steps=9, stop=ends[:1]).tolist() == [one[: at[0] + 1]]


@pytest.mark.long
def test_a_seed_gives_the_same_draws_and_the_likeliest_are_drawn_where_alone(root: Path) -> None:
    decoder = kv.Decoder(root / LLAMA, threads=1)
    likeliest = decoder.generate(PROMPTS, steps=6)
    for limit in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-320}):
        assert np.array_equal(
            decoder.generate(PROMPTS, steps=6, **{"temperature": 5.0, **limit}), likeliest
        )
    drawn = [decoder.generate(PROMPTS, 6, temperature=5.0, seed=seed) for seed in (3, 3, 4)]
    assert np.array_equal(*drawn[:2])
    assert not np.array_equal(*drawn[1:])


ODDS = [
    pytest.param({}, [0.1, 0.4, 0.0, 0.3, 0.2], id="all"),
    pytest.param({"top_k": 2}, [0.0, 4 / 7, 0.0, 3 / 7, 0.0], id="top_k"),
    pytest.param(
        {"top_p": 0.7001}, [0.0, 4 / 9, 0.0, 3 / 9, 2 / 9], id="top_p with what crosses it"
    ),
    pytest.param({"top_p": 0.6999}, [0.0, 4 / 7, 0.0, 3 / 7, 0.0], id="top_p"),
    pytest.param({"top_k": 3, "top_p": 0.7}, [0.0, 4 / 7, 0.0, 3 / 7, 0.0], id="top_p of top_k"),
    pytest.param({"temperature": 0.5}, [1 / 30, 16 / 30, 0.0, 9 / 30, 4 / 30], id="temperature"),
]


@pytest.mark.parametrize(("limits", "odds"), ODDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tokens_are_drawn_with_the_odds_of_a_softmax(limits, odds, dtype) -> None:
    with np.errstate(divide="ignore"):
        logits = np.log([0.1, 0.4, 0.0, 0.3, 0.2]).astype(dtype)
    logits[2] = np.nan if dtype == np.float16 else -np.inf
    given = {"temperature": 1.0, "top_k": None, "top_p": None, **limits}
    drawn = choosing(**given, seed=5)(np.tile(logits, (20_000, 1)))
    found = np.bincount(drawn, minlength=5) / len(drawn)
    assert (found[np.array(odds) == 0] == 0).all()
    np.testing.assert_allclose(found, odds, atol=0.015)  # four deviations of 20,000 draws


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_draw_nothing(value: float) -> None:
    with pytest.raises(kv.KvtoolError, match="expected finite numbers"):
        choosing(1.0, None, None, 0)(np.full((2, 5), value))


def test_a_model_that_takes_no_tokens_generates_none(root: Path) -> None:
    decoder = kv.Decoder(root / "fixtures/models/native/mobius_block_bias_int64_2d.onnx")
    with pytest.raises(kv.UsageError, match="kvtool finds no input for token ids"):
        decoder.generate([1], 2)


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"threads": 0}])
def test_sizes_are_positive(root: Path, wrong) -> None:
    with pytest.raises(kv.UsageError, match="is 0, expected at least 1"):
        kv.Decoder(root / LLAMA, **wrong)


def test_inputs_that_do_not_fit_into_memory_name_the_prompt(root: Path, monkeypatch) -> None:
    decoder = kv.Decoder(root / LLAMA, threads=1)

    def feeds(*_):
        raise MemoryError("Unable to allocate 74.5 GiB")

    monkeypatch.setattr("onnx_kvtool.decoding.kept.Feeder.feeds", feeds)
    with pytest.raises(kv.UsageError, match="the inputs of 3 tokens behind 0 others do not fit"):
        decoder.prefill([[5, 3, 8]])
