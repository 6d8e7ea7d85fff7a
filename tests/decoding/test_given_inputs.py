"""Decoders whose host gives more than tokens: hidden states, an encoder's states, positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from tests.grids import part
from tests.growing_models import Conversation
from tests.test_growing_models import host_of, others_of

pytestmark = pytest.mark.long

PROMPTS = np.array([[5, 3, 7, 11], [1, 2, 4, 9]])
STEPS = 5


@pytest.fixture
def qwen(root: Path) -> onnx.ModelProto:
    return onnx.load(root / "fixtures/growing/qwen3__dynamo_op18.onnx")


@pytest.fixture
def table(qwen: onnx.ModelProto) -> np.ndarray:
    (gather,) = (node for node in qwen.graph.node if "input_ids" in node.input)
    (weight,) = (one for one in qwen.graph.initializer if one.name == gather.input[0])
    return numpy_helper.to_array(weight)


@pytest.fixture
def of_states(qwen: onnx.ModelProto) -> onnx.ModelProto:
    """The decoder with `inputs_embeds`, as exports of models of images and text have it."""
    model = onnx.ModelProto()
    model.CopyFrom(qwen)
    graph = model.graph
    (gather,) = (node for node in graph.node if "input_ids" in node.input)
    for node in graph.node:
        node.input[:] = ["inputs_embeds" if n == gather.output[0] else n for n in node.input]
    graph.node.remove(gather)
    kept = [value for value in graph.input if value.name != "input_ids"]
    del graph.input[:]
    shape = ["s14", "s0", 48]
    graph.input.extend([
        helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, shape), *kept,
    ])  # fmt: skip
    return model


@pytest.fixture
def of_three_parts(qwen: onnx.ModelProto) -> onnx.ModelProto:
    """The decoder with positions of time, height and width, and turned by the second of them."""
    model = onnx.ModelProto()
    model.CopyFrom(qwen)
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["height" if n == "position_ids" else n for n in node.input]
    (value,) = (value for value in graph.input if value.name == "position_ids")
    shape = [3, "s14", "s0"]
    value.CopyFrom(helper.make_tensor_value_info("position_ids", TensorProto.INT64, shape))
    graph.initializer.append(numpy_helper.from_array(np.array(1), "second"))
    graph.node.insert(0, helper.make_node("Gather", ["position_ids", "second"], ["height"]))
    return model


def _forms(model: onnx.ModelProto) -> list[object]:
    """The model itself, and raised to a fixed capacity."""
    return [model, kv.raise_(model, capacity=16, verify=False)[0]]


def test_hidden_states_choose_what_their_tokens_choose(qwen, of_states, table) -> None:
    expected = kv.Decoder(qwen, threads=1).generate(PROMPTS, STEPS)
    for model in _forms(of_states):
        decoder = kv.Decoder(model, threads=1, embed=table.__getitem__)
        for prompt in (PROMPTS, table[PROMPTS]):
            assert np.array_equal(decoder.generate(prompt, STEPS), expected)
        assert decoder.length == PROMPTS.shape[1] + STEPS - 1


def _positions(before: int, length: int) -> np.ndarray:
    """Those of a prompt whose tokens 1 and 2 are an image of height 1; of the second also the 3."""
    first, second = [0, 1, 1, 2, 3, 4, 5, 6, 7], [0, 1, 1, 1, 2, 3, 4, 5, 6]
    height = np.array([first, second])[:, before : before + length]
    return np.stack([np.zeros_like(height), height, np.zeros_like(height)])


def test_positions_of_three_parts_go_on_after_the_largest(of_three_parts) -> None:
    for model in _forms(of_three_parts):
        decoder, whole = kv.Decoder(model, threads=1), PROMPTS
        chosen = decoder.generate(PROMPTS, STEPS, {"position_ids": _positions(0, 4)})
        for place in range(STEPS):  # each as the last of a prompt
            given = {"position_ids": _positions(0, whole.shape[1])}
            logits = decoder.prefill(whole, given)
            assert logits[:, -1].argmax(axis=-1).tolist() == chosen[:, place].tolist()
            whole = np.concatenate([whole, chosen[:, place : place + 1]], axis=1)


def test_positions_of_three_parts_count_the_tokens_of_text(qwen, of_three_parts) -> None:
    expected = kv.Decoder(qwen, threads=1).generate(PROMPTS, STEPS)
    assert np.array_equal(kv.Decoder(of_three_parts).generate(PROMPTS, STEPS), expected)


@part(2)
@pytest.mark.parametrize("form", ["growing", "fixed"])
@pytest.mark.parametrize("name", ["t5_decoder_merged__optimum", "bart__dynamo_op18"])
def test_what_an_encoder_has_found_is_given_to_each_step(root: Path, name: str, form: str) -> None:
    source = root / f"fixtures/growing/{name}.onnx"
    model = source if form == "growing" else kv.raise_(source, capacity=16, verify=False)[0]
    others = others_of(name, 2)
    chosen = kv.Decoder(model, threads=1).generate(PROMPTS, STEPS, others)
    whole = np.concatenate([PROMPTS, chosen[:, :-1]], axis=1)
    talk = Conversation(whole, np.ones_like(whole), others)
    logits, _ = host_of(name).answer(talk, (4, *[1] * (STEPS - 1)))
    assert logits[:, 3:].argmax(axis=-1).tolist() == chosen.tolist()


@pytest.mark.exhaustive
def test_caches_of_an_encoder_are_given_to_a_decoder_that_does_not_make_them(root: Path) -> None:
    """By the host, which has them of the first step, which is a file of its own in such exports."""
    merged, others = "t5_decoder_merged__optimum", others_of("t5_decoder_merged__optimum", 2)
    talk = Conversation(PROMPTS[:, :1], np.ones((2, 1), np.int64), others)
    _, presents = host_of(merged).answer(talk, (1,))
    made = {
        name.replace("present", "past_key_values"): array
        for name, array in presents.items()
        if ".encoder." in name
    }
    given = {"encoder_attention_mask": others["encoder_attention_mask"], **made}
    source = root / "fixtures/growing/t5_decoder_with_past__optimum.onnx"
    whole = kv.Decoder(root / f"fixtures/growing/{merged}.onnx", threads=1)
    expected = whole.generate(PROMPTS[:, :1], STEPS, others)
    for model in (source, kv.raise_(source, capacity=16, verify=False)[0]):
        chosen = kv.Decoder(model, threads=1).generate(PROMPTS[:, :1], STEPS, given)
        assert np.array_equal(chosen, expected)


WRONG = [
    pytest.param({"nothing": [1]}, "the model has no such input", id="no input"),
    pytest.param({"input_ids": [[1]]}, "gives its tokens, caches and mask itself", id="tokens"),
    pytest.param({"attention_mask": [[1]]}, "caches and mask itself", id="the mask"),
    pytest.param({"past_key_values.0.key": [0]}, "caches and mask itself", id="a cache"),
    pytest.param({"position_ids": [0]}, "of shape (1,), expected ('s14", id="a rank"),
    pytest.param({"position_ids": [[0]]}, "of shape (1, 1), expected (2, 4)", id="a shape"),
]


@pytest.mark.parametrize(("inputs", "message"), WRONG)
def test_what_a_host_does_not_give_is_refused(qwen, inputs, message: str) -> None:
    with pytest.raises(kv.UsageError) as caught:
        kv.Decoder(qwen, threads=1).prefill(PROMPTS, inputs)
    assert message in str(caught.value)


def test_tokens_are_not_generated_from_what_is_made_up(root: Path, qwen, of_states, table) -> None:
    decoder = kv.Decoder(root / "fixtures/growing/bart__dynamo_op18.onnx", threads=1)
    assert decoder.prefill(PROMPTS).shape == (2, 4, 64)  # as `bench` does it, to take the time
    with pytest.raises(kv.UsageError, match="what to feed as `encoder_hidden_states`"):
        decoder.generate(PROMPTS, 2)
    with pytest.raises(kv.UsageError, match="token ids"):
        kv.Decoder(of_states, threads=1).generate(PROMPTS, 2)
    with pytest.raises(kv.UsageError, match=r"`embed` made an array of shape \(2, 4\)"):
        kv.Decoder(of_states, threads=1, embed=lambda ids: ids).generate(PROMPTS, 2)
    with pytest.raises(kv.UsageError, match="the hidden states of tokens"):
        kv.Decoder(qwen, threads=1).prefill(table[PROMPTS])
