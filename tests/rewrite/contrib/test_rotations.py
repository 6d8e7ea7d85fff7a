"""Rotations of recent decoders in their standard form, against onnxruntime and a formula."""

from __future__ import annotations

from typing import Any

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


REFUSED = {
    "sections of another width": (4, {"mrope_section": [2, 2, 2]}, "is [2, 2, 2]"),
    "another layout": (4, {"mrope_section": [4, 2, 2], "mrope_layout": 2}, "layout` of 2"),
    "heads without a number": (3, {"mrope_section": [4, 2, 2]}, "has no `num_heads`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    rank, attributes, words = REFUSED[name]
    assert words in refusal("MRotaryEmbedding", inputs_of(np.float32, rank, 8), **attributes)
