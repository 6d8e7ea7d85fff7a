"""Exported decoders whose caches grow, driven as a host drives them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnx_kvtool.runtime.onnxruntime import Session
from tests.growing_models import CHUNKS, Arrays, Conversation, Host, conversation

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "growing"

NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
ANSWERED = sorted(
    path.stem for path in FOLDER.glob("*.npz") if "past" not in "".join(np.load(path).files)
)
"""Those whose conversation with PyTorch is recorded."""

UNPADDED = {"gemma3_rolling__dynamo_op18", "t5_decoder_merged__optimum"}
"""Models without an input that tells padding from tokens."""


def limit_of(name: str) -> float:
    """Return how far the element type lets logits of the order of 1 go apart."""
    return 2e-2 if "fp16" in name else 1e-4


@cache
def host_of(name: str) -> Host:
    path = FOLDER / f"{name}.onnx"
    session = Session(path.read_bytes(), "")
    return Host(path, lambda feeds: dict(session.run(feeds)))


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
    assert {"dynamo_op18", "optimum_op18", "optimum_op18__onnxsim"} <= kinds


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


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ANSWERED])
def test_an_export_without_a_record_answers_in_steps_as_at_once(name: str) -> None:
    talk = conversation(2, sum(CHUNKS))
    mask = np.ones_like(talk.mask) if name in UNPADDED else talk.mask
    talk = Conversation(talk.ids, mask, others_of(name, 2))
    logits, _ = host_of(name).answer(talk)
    whole, _ = host_of(name).answer(talk, [sum(CHUNKS)])
    assert np.isfinite(logits[talk.live]).all()
    assert largest(logits[talk.live], whole[talk.live]) <= limit_of(name)
    assert logits[talk.live].std() > 0.05
