"""Rotations of recent decoders in their standard form, against onnxruntime and a formula."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import FLOATS, OPSETS, demand_same, normal, opset_for, refusal
from tests.runtime.kernels.contrib.node import needs_newest

pytestmark = needs_newest

B, H, S, D, M = 2, 3, 5, 16, 11
some = search(60)
SECTIONS = st.sampled_from([[8, 0, 0], [2, 3, 3], [4, 2, 2], [0, 3, 5], [3, 3, 2], [1, 0, 7]])


def inputs_of(dtype: Any, rank: int, half: int) -> dict[str, Any]:
    x = normal(*((B, S, H * D) if rank == 3 else (B, H, S, D)), dtype=dtype)
    angles = normal(M, half).astype(np.float64)
    return {
        "input": x,
        "position_ids": np.random.default_rng(4).integers(0, M, (3, B, S)),
        "cos_cache": np.cos(angles).astype(dtype),
        "sin_cache": np.sin(angles).astype(dtype),
    }


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    rank=st.sampled_from([3, 4]),
    section=SECTIONS,
    part=st.sampled_from([None, 0, 8]),
    layout=st.sampled_from([None, 0, 1]),
    interleaved=st.sampled_from([None, 0, 1]),
    scale=st.sampled_from([None, 1.0, 0.3]),
    packed=st.sampled_from([None, 0, 1]),
)
def test_m_rotary_embedding(
    opset: int,
    dtype: Any,
    rank: int,
    section: list[int],
    part: int | None,
    layout: int | None,
    interleaved: int | None,
    scale: float | None,
    packed: int | None,
) -> None:
    if part:
        section = [size // 2 for size in section]
        section[0] += part // 2 - sum(section)
    given_: dict[str, Any] = {
        "rotary_embedding_dim": part,
        "mrope_layout": layout,
        "interleaved": interleaved,
        "scale": scale,
        "is_packed_batching": packed,
        "num_heads": H if rank == 3 or part else None,
    }
    demand_same(
        "MRotaryEmbedding",
        inputs_of(dtype, rank, sum(section)),
        at=opset_for(opset, dtype),
        mrope_section=section,
        **{name: value for name, value in given_.items() if value is not None},
    )


@some
@given(opset=OPSETS, groups=st.sampled_from([1, 3]))
def test_gemma_rotary_embedding(opset: int, groups: int) -> None:
    """onnxruntime has it on GPUs alone: what is expected is the formula."""
    kind, angles = np.float16, normal(B, S, D) * 3
    inputs = {
        "emb": angles,
        "q": normal(B, H, S, D, dtype=kind),
        "q_rot": normal(B, H, S, D, dtype=kind, seed=4),
        "k": normal(B, groups, S, D, dtype=kind, seed=5),
        "k_rot": normal(B, groups, S, D, dtype=kind, seed=6),
    }
    cos, sin = (f(angles)[:, None].astype(np.float64) for f in (np.cos, np.sin))
    expected = {
        f"{name}_out": (inputs[name] * cos + inputs[f"{name}_rot"] * sin).astype(kind)
        for name in ("q", "k")
    }
    demand_same(
        "GemmaRotaryEmbedding", inputs, tuple(expected), at=opset, expected=expected, tolerance=1e-2
    )


def rotating(x: Any, cosine: Any, base: bool) -> dict[str, Any]:
    """Return the inputs of an RMSNormRotary of heads of 16, of which 12 from 2 on are read."""
    angles = normal(M, 4).astype(np.float64)
    places = np.random.default_rng(4).integers(0, M, (B, S))
    return {
        "X": normal(B, S, H, D, dtype=x),
        "scale": normal(12),
        "position_ids": np.array([3]) if base else places,
        "cosine": np.cos(angles).astype(cosine),
        "sine": np.sin(angles).astype(cosine),
    }


@some
@given(
    opset=st.sampled_from([24, 21, 18, 13]),
    dtype=st.sampled_from([np.float16, ml_dtypes.bfloat16]),
    cache=st.sampled_from([np.float32, ml_dtypes.bfloat16]),
    half=st.sampled_from([0, 1]),
    joined=st.sampled_from([0, 1]),
    base=st.booleans(),
    normed=st.booleans(),
)
def test_rms_norm_rotary(
    opset: int, dtype: Any, cache: Any, half: int, joined: int, base: bool, normed: bool
) -> None:
    """onnxruntime has it on GPUs alone: what is expected is the formula."""
    base = base and not joined
    inputs = rotating(dtype, cache, base)
    x = inputs["X"][..., 2:14].astype(np.float64)
    rows = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * inputs["scale"]
    if dtype == cache and not half:
        rows = rows.astype(cache).astype(np.float64)
    places = 3 + np.arange(S)[None].repeat(B, 0) if base else inputs["position_ids"]
    cos, sin = (inputs[name].astype(np.float64)[places][:, :, None] for name in ("cosine", "sine"))
    one, other, rest = np.split(rows, [4, 8], axis=-1)
    turned = np.concatenate([one * cos - other * sin, other * cos + one * sin, rest], axis=-1)
    shape = (1, B * S, H * 12) if joined else (B, S, H * 12)
    expected = {"y": turned.reshape(shape).astype(np.float16 if half else ml_dtypes.bfloat16)}
    if normed:
        expected["normed"] = rows.astype(np.float32)
    demand_same(
        "RMSNormRotary",
        inputs,
        tuple(expected),
        at=opset,
        expected=expected,
        tolerance=5e-2,
        rotary_embedding_dim=8,
        input_start=2,
        input_width=12,
        epsilon=1e-3,
        output_fp16=half,
        flatten_batch=joined,
    )


def test_one_position_of_joined_sequences_is_refused() -> None:
    inputs = rotating(np.float16, np.float32, True)
    given_ = {"rotary_embedding_dim": 8, "input_width": 12, "flatten_batch": 1}
    assert "one position for several rows" in refusal("RMSNormRotary", inputs, **given_)


def test_a_part_outside_of_a_head_is_refused() -> None:
    inputs = rotating(np.float16, np.float32, False)
    given_ = {"rotary_embedding_dim": 8, "input_width": 12, "input_start": 8}
    assert "rotates 8 of 12 elements from 8 on, of 16" in refusal("RMSNormRotary", inputs, **given_)


REFUSED = {
    "sections of another width": (4, {"mrope_section": [2, 2, 2]}, "is [2, 2, 2]"),
    "another layout": (4, {"mrope_section": [4, 2, 2], "mrope_layout": 2}, "layout` of 2"),
    "heads without a number": (3, {"mrope_section": [4, 2, 2]}, "has no `num_heads`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    rank, attributes, words = REFUSED[name]
    assert words in refusal("MRotaryEmbedding", inputs_of(np.float32, rank, 8), **attributes)
