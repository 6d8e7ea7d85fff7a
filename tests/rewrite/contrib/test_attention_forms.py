"""Attention that is quantised, packed, or for one token alone, as Attention of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import Array, Arrays, demand_same, refusal
from tests.rewrite.contrib.test_quantized import codes, number
from tests.runtime.kernels.contrib.node import needs_onnxruntime, theirs
from tests.runtime.kernels.contrib.test_multi_head_attention import (
    ALL,
    NAMES,
    ONE,
    B,
    D,
    H,
    L,
    P,
    S,
    W,
    lengths,
    normal,
    typed,
)

pytestmark = needs_onnxruntime

OPSETS = st.sampled_from([24, 21, 18, 13])
CODES = st.sampled_from([np.uint8, np.int8])
BUFFER = 12
some = search(60)


def before(rows: int) -> Array:
    return (np.arange(rows) < np.array([[rows], [3]])).astype(np.int32)


@some
@given(
    opset=OPSETS,
    dtype=CODES,
    columns=st.booleans(),
    points=st.booleans(),
    past=st.booleans(),
    mask=st.sampled_from([None, "ends", "starts", "rows"]),
    causal=st.sampled_from([0, 1]),
    scale=st.sampled_from([None, 0.3]),
    low=st.sampled_from([None, -3.0]),
)
def test_q_attention(
    opset: int, dtype: Any, columns: bool, points: bool, past: bool, mask: Any, causal: int,
    scale: float | None, low: float | None,
) -> None:  # fmt: skip
    per = (3 * H * D,) if columns else ()
    total = P + L if past else L
    masks = {
        "ends": lengths(total, 3),
        "starts": lengths(total, 3, 0, 1),
        "rows": before(total),
    }
    inputs = {
        "input": codes(B, L, W),
        "weight": codes(W, 3 * H * D, dtype=dtype),
        "bias": normal(3 * H * D),
        "input_scale": number(0.01),
        "weight_scale": np.broadcast_to(number(0.005), per).copy(),
        "mask_index": masks.get(mask),
        "input_zero_point": np.array(120, np.uint8) if points else None,
        "weight_zero_point": np.broadcast_to(np.array(7, dtype), per).copy() if points else None,
        "past": normal(2, B, H, P, D) if past else None,
    }
    attributes: dict[str, Any] = {"unidirectional": causal}
    numbers = {"scale": scale, "mask_filter_value": low}
    attributes |= {name: value for name, value in numbers.items() if value is not None}
    outputs = ("y", "present") if past else ONE
    demand_same("QAttention", inputs, outputs, at=opset, tolerance=5e-5, num_heads=H, **attributes)


MASKED = (
    *("query", "key", "value", "mask_index", "attention_bias", "past_key", "past_value"),
    *("past_sequence_length", "beam_width", "cache_indirection", "bias"),
)


def token(seed: int) -> Array:
    return normal(B, 1, H * D, seed=seed)


ITSELF = {"query": token(0), "key": token(1), "value": token(2)} | {
    "past_key": normal(B, H, BUFFER, D),
    "past_value": normal(B, H, BUFFER, D, seed=2),
    "past_sequence_length": lengths(3),
}
OTHERS = {"query": token(0), "key": normal(B, H, S, D), "value": normal(B, H, S, D, seed=2)}


@some
@given(
    opset=OPSETS,
    cross=st.booleans(),
    bias=st.booleans(),
    mask=st.booleans(),
    added=st.booleans(),
    valid=st.sampled_from([0, 3, BUFFER - 1]),
    scale=st.sampled_from([None, 0.3]),
    low=st.sampled_from([None, -3.0]),
)
def test_decoder_masked_multi_head_attention(
    opset: int, cross: bool, bias: bool, mask: bool, added: bool, valid: int, scale: float | None,
    low: float | None,
) -> None:  # fmt: skip
    total = S if cross else valid + 1
    given_: dict[str, Array | None] = dict(OTHERS if cross else ITSELF)
    if not cross:
        given_["past_sequence_length"] = lengths(valid)
    if bias:
        given_["bias"] = normal(3 * H * D)
    if mask:
        given_["mask_index"] = np.array([[1] * total, [1, *[0] * (total - 1)]], np.int32)
    if added and not cross:  # onnxruntime takes none there
        given_["attention_bias"] = normal(1, H, 1, total)
    attributes: dict[str, Any] = {} if cross else {"past_present_share_buffer": 1}
    numbers = {"scale": scale, "mask_filter_value": low}
    attributes |= {name: value for name, value in numbers.items() if value is not None}
    demand_same(
        "DecoderMaskedMultiHeadAttention",
        typed(given_, MASKED, np.float32),
        ONE if cross else ALL,
        at=opset,
        num_heads=H,
        **attributes,
    )


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16]),
    whole=st.booleans(),
    mask=st.booleans(),
    causal=st.sampled_from([0, 1]),
    scale=st.sampled_from([None, 0.3]),
)
def test_packed_rows(
    opset: int, dtype: Any, whole: bool, mask: bool, causal: int, scale: float | None
) -> None:
    """onnxruntime takes them apart on GPUs alone: its kernel is given the parts."""
    rows = L if whole else S
    query, key, value = (normal(B, n, H, D, seed=i) for i, n in enumerate((L, rows, rows)))
    names = ("query", "key", "value")
    plain: Arrays = {
        name: part.reshape(*part.shape[:2], H * D)
        for name, part in zip(names, (query, key, value), strict=True)
    }
    if whole:
        packed: Arrays = {"query": np.stack([query, key, value], axis=3)}
    else:
        packed = {"query": plain["query"], "key": np.stack([key, value], axis=3)}
    more: Arrays = {"key_padding_mask": before(rows)} if mask else {}
    attributes: dict[str, Any] = {"num_heads": H, "unidirectional": causal if whole else 0}
    attributes |= {} if scale is None else {"scale": scale}
    both = ({**each, **more} for each in (plain, packed))
    apart, joined = (typed(each, NAMES, dtype) for each in both)
    expected = theirs("MultiHeadAttention", apart, ONE, **attributes)
    limit = 2e-5 if dtype == np.float32 else 2e-2
    demand_same(
        "MultiHeadAttention",
        joined,
        ONE,
        at=opset,
        tolerance=limit,
        expected=expected,
        **attributes,
    )


REFUSED = {
    "beams": (ITSELF | {"beam_width": lengths(2)}, {"past_present_share_buffer": 1}, "beam_width"),
    "a past that grows": (ITSELF, {}, "past_present_share_buffer"),
    "a packed query": (
        {"query": normal(B, 1, 3 * H * D)} | {n: v for n, v in ITSELF.items() if "past" in n},
        {"past_present_share_buffer": 1},
        "packed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    inputs, attributes, word = REFUSED[name]
    given_ = typed(inputs, MASKED, np.float32)
    said = refusal("DecoderMaskedMultiHeadAttention", given_, ALL, num_heads=H, **attributes)
    assert word in said


def test_a_bias_of_packed_rows_is_refused() -> None:
    inputs = typed({"query": normal(B, L, H, 3, D), "bias": normal(3 * H * D)}, NAMES, np.float32)
    assert "`bias`" in refusal("MultiHeadAttention", inputs, ONE, num_heads=H)
