"""Exported decoders whose caches grow, driven as a host drives them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import onnxruntime, reference
from tests.grids import part, thinned
from tests.growing_models import CHUNKS, Arrays, Conversation, Host, conversation
from tests.rewrite.raising.attention.test_growing_decoders import (
    LAYERS,
    assert_each_layer_has_one,
)
from tests.rewrite.raising.brute_force import dead_nodes

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "growing"

ELSEWHERE = ("../models/concat/gpt2_dynamic__ts_op17",)
"""A decoder whose single run is recorded beside the models that are run once."""

NAMES = [*sorted(path.stem for path in FOLDER.glob("*.onnx")), *ELSEWHERE]
ANSWERED = sorted(
    path.stem for path in FOLDER.glob("*.npz") if "past" not in "".join(np.load(path).files)
)
"""Those whose conversation with PyTorch is recorded."""

RUNTIMES = {"onnxruntime": onnxruntime.Session, "reference": reference.Session}

ROLLING = (
    "cohere2_rolling__dynamo_op18",
    "gemma3_rolling__dynamo_op18",
    "mistral_rolling__dynamo_op18",
)
"""Models with caches that keep the last rows only."""

KEPT = {"mistral_rolling__dynamo_op18": 5}
"""Rows before the new tokens that `attention_mask` has at most."""

CAPACITY, WINDOW = 64, 6

LONG = (5, *[1] * 8, 3)
"""A prompt, eight steps, and a chunk of three in mid-sequence."""

UNPADDED = {"gemma3_rolling__dynamo_op18", "t5_decoder_merged__optimum"}
"""Models without an input that tells padding from tokens."""


def limit_of(name: str) -> float:
    """Return how far the element type lets numbers of the order of 1 go apart."""
    return 3e-2 if "fp16" in name else 1e-4


@cache
def host_of(name: str, runtime: str = "onnxruntime") -> Host:
    return hosting(name, (FOLDER / f"{name}.onnx").read_bytes(), runtime)


def hosting(name: str, model: bytes, runtime: str) -> Host:
    """Return the host of a form of a model."""
    session = RUNTIMES[runtime](model, "")
    message = onnx.load_from_string(model)
    return Host(message, lambda feeds: dict(session.run(feeds)), kept=KEPT.get(name))


def recorded(name: str) -> tuple[Conversation, Arrays]:
    """Return a conversation and what PyTorch answered."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
        outputs = {key[4:]: arrays[key] for key in arrays.files if key.startswith("out:")}
    ids, mask = inputs.pop("input_ids"), inputs.pop("attention_mask")
    return Conversation(ids, mask, inputs), outputs


def others_of(name: str, batch: int) -> Arrays:
    """Return what a model takes besides its tokens and caches: what an encoder has found."""
    graph = onnx.load(FOLDER / f"{name}.onnx", load_external_data=False).graph
    generator = np.random.default_rng(3)
    found: Arrays = {}
    for value in graph.input:
        shape = [dim.dim_value or None for dim in value.type.tensor_type.shape.dim]
        if "encoder" in value.name and value.name not in host_of(name).caches:
            shape = [batch if axis == 0 else size or 7 for axis, size in enumerate(shape)]
            is_mask = value.name == "encoder_attention_mask"
            found[value.name] = (
                np.ones((batch, 7), np.int64)
                if is_mask
                else generator.normal(size=shape).astype(np.float32)  # type: ignore[arg-type]
            )
    return found


def largest(actual: np.ndarray, expected: np.ndarray) -> float:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    return float(np.abs(actual.astype(np.float64) - expected).max())


def test_each_exporter_is_among_them() -> None:
    kinds = {name.partition("__")[2] for name in ANSWERED}
    assert {"dynamo_op18", "dynamo_op23", "ts_op14", "ts_op17", "optimum_op18"} <= kinds
    assert {kind.rpartition("__")[2] for kind in kinds} >= {"onnxslim", "onnxsim", "ort"}
    assert len(ANSWERED) >= 20


@pytest.mark.parametrize("name", ANSWERED)
def test_an_export_answers_as_pytorch_did(name: str) -> None:
    """Logits of tokens, and cache rows of tokens, after a prompt and three steps."""
    talk, expected = recorded(name)
    logits, caches = host_of(name).answer(talk)
    assert largest(logits[talk.live], expected["logits"][talk.live]) <= limit_of(name)
    assert expected.keys() == {"logits", *caches}
    for present, found in caches.items():
        live = talk.live[:, None, -found.shape[2] :, None]
        pair = (np.where(live, array, 0) for array in (found, expected[present]))
        assert largest(*pair) <= limit_of(name), present


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ANSWERED])
def test_an_export_without_a_record_answers_in_steps_as_at_once(name: str) -> None:
    talk = talk_with(name, 2, sum(CHUNKS))
    logits, _ = host_of(name).answer(talk)
    whole, _ = host_of(name).answer(talk, [sum(CHUNKS)])
    assert np.isfinite(logits[talk.live]).all()
    assert largest(logits[talk.live], whole[talk.live]) <= limit_of(name)
    assert logits[talk.live].std() > 0.05


def talk_with(name: str, batch: int, length: int) -> Conversation:
    talk = conversation(batch, length)
    mask = np.ones_like(talk.mask) if name in UNPADDED else talk.mask
    return Conversation(talk.ids, mask, others_of(name, batch))


FORMS: dict[AttentionChoice, tuple[int, ...]] = {
    "keep": (24, 13),
    "sliced": (24,),
    "full": (24,),
    "auto": (24, 18, 13),
}
"""What becomes of attention, and the opsets that the result is written at."""

RAISED = [
    pytest.param(name, attention, id=f"{name}-{attention}")
    for name in NAMES
    for attention in FORMS
    if attention != "sliced" or name in ROLLING  # `auto` writes the same of all others
]


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
@pytest.mark.parametrize(("name", "attention"), thinned(RAISED, 70))
def test_a_fixed_form_answers_as_the_growing_one(name: str, attention: AttentionChoice) -> None:
    """In both runtimes, bit for bit in one of them where no operator has become another.

    What it is lowered to runs in onnxruntime alone: what both compute, tests/conformance holds.

    No node is left over. Lowered attention of groups takes half the time of the schema's body, and
    needs to know that heads share a mask.

    onnxruntime fuses other nodes at another opset, and numpy multiplies a part of a buffer in
    another order than a whole one.
    """
    raised, report = kv.raise_(
        FOLDER / f"{name}.onnx",
        capacity=CAPACITY,
        attention=attention,
        assume=["rotated-rows"] if name in ROLLING else [],
        verify=False,
    )
    modes = {update.past: update.mode for update in report.raised}
    assert modes.keys() >= {past for past in host_of(name).caches if ".encoder." not in past}
    if name in LAYERS and attention != "keep":
        assert_each_layer_has_one(raised, report, name, attention)
    for opset in FORMS[attention]:
        form = raised
        if opset < 24:
            form, lowering = kv.lower(raised, opset=opset, verify=False)
            vias = {done.via for done in lowering.lowered if done.rule == "attention"}
            assert vias == {"grouped"} or opset != 18 or name not in LAYERS
        fixed = ir.to_proto(form)
        onnx.checker.check_model(fixed, full_check=True)
        assert opset < 24 or not dead_nodes(fixed)
        runtimes = RUNTIMES if opset == 24 else ["onnxruntime"]
        hosts = {one: hosting(name, fixed.SerializeToString(), one) for one in runtimes}
        for batch in (1, 3):
            apart = [difference(name, hosts[one], batch, modes, one) for one in runtimes]
            assert max(apart) <= limit_of(name), (opset, batch)
            assert min(apart) == 0 or (attention, opset) != ("keep", 24)


AROUND = {
    "a prompt longer than the window": (9, *[1] * 14, 4, 1, 1),
    "chunks of all lengths": (2, 1, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7, 1),
}
"""Conversations that go over the edge of a window several times."""


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
@part(4)
@pytest.mark.parametrize("attention", ["auto", "full"])
@pytest.mark.parametrize("name", ROLLING)
def test_a_circular_cache_is_read_as_it_lies(name: str, attention: AttentionChoice) -> None:
    model, report = kv.raise_(
        FOLDER / f"{name}.onnx",
        capacity=CAPACITY,
        attention=attention,
        assume=["rotated-rows"],
        verify=False,
    )
    branches = [node for node in model.graph if node.op_type == "If"]
    assert len(branches) == sum(update.mode == "circular" for update in report.raised) // 2
    modes: dict[str, str] = {update.past: update.mode for update in report.raised}
    for opset in (24, 18, 13):
        form = model if opset == 24 else kv.lower(model, opset=opset, verify=False)[0]
        host = hosting(name, serialize(form), "onnxruntime")
        for chunks, batch in zip(AROUND.values(), (3, 1), strict=True):
            apart = difference(name, host, batch, modes, "onnxruntime", chunks)
            assert apart <= limit_of(name)


@cache
def said(
    name: str, batch: int, chunks: tuple[int, ...], runtime: str
) -> tuple[Conversation, Arrays, Arrays]:
    """Return a conversation with a model whose caches grow, its logits and its cache rows."""
    talk = talk_with(name, batch, sum(chunks))
    return talk, *host_of(name, runtime).answer(talk, chunks)


def difference(
    name: str,
    fixed: Host,
    batch: int,
    modes: dict[str, str],
    runtime: str,
    chunks: Sequence[int] = LONG,
) -> float:
    """Return how far logits and cache rows of tokens are apart, largest of all.

    Args:
        name: The model with growing caches.
        fixed: The host of its other form.
        batch: Sequences of the conversation; all but the first are padded.
        modes: How the other form writes each cache that has a capacity there, by its past.
        runtime: One of RUNTIMES.
        chunks: Tokens of each step.
    """
    chunks = (1,) * sum(LONG) if name == "t5_decoder_with_past__optimum" else tuple(chunks)
    talk, logits, presents = said(name, batch, chunks, runtime)
    source = host_of(name, runtime)
    found, buffers = fixed.answer(talk, chunks)
    worst = largest(found[talk.live], logits[talk.live])
    for past, present in source.caches.items():
        buffer, rows = buffers[present], presents[present]
        if past in modes:
            positions = np.arange(sum(chunks))[-rows.shape[2] :]
            is_circular = modes[past] == "circular"
            assert buffer.shape[2] == (WINDOW if is_circular else CAPACITY)
            buffer = buffer[:, :, positions % buffer.shape[2]]
        if ".encoder." not in past:
            live = talk.live[:, None, -rows.shape[2] :, None]
            buffer, rows = np.where(live, buffer, 0), np.where(live, rows, 0)
        worst = max(worst, largest(buffer, rows))
    return worst
