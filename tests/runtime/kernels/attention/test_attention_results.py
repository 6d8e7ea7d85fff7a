"""Attention against the naive one, and against onnx.reference where that is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference.ops.op_attention import _compute_attention

from onnx_kvtool.runtime.kernels.attention.attention import attention_23
from onnx_kvtool.runtime.kernels.kernel import Context
from tests.grids import each, search
from tests.naive_attention import flat, naive_attention

PLAIN: dict[str, Any] = {
    "is_causal": 0,
    "kv_num_heads": None,
    "q_num_heads": None,
    "qk_matmul_output_mode": 0,
    "scale": None,
    "softcap": 0.0,
    "softmax_precision": None,
}


@dataclass(frozen=True)
class Case:
    """One Attention: sizes, and what is given."""

    rank: int
    batch: int
    kv_heads: int
    group: int
    length: int
    new: int
    past: int | None
    size: int
    value_size: int
    nonpad: tuple[int, ...] | None
    mask: str | None
    short: int
    causal: bool
    scale: float | None
    softcap: float
    left: int
    right: int
    mode: int
    double: bool
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw an Attention that the specification allows."""
    batch, new = draw(st.integers(0, 3)), draw(st.integers(0, 7))
    cache = draw(st.sampled_from(["none", "nonpad", "past"]))
    past = draw(st.integers(0, 3)) if cache == "past" else None
    nonpad = tuple(draw(st.lists(st.integers(0, new), min_size=batch, max_size=batch)))
    total = new + (past or 0)
    least = max([2, *(nonpad if cache == "nonpad" else ())])
    return Case(
        rank=draw(st.sampled_from([3, 4])),
        batch=batch,
        kv_heads=draw(st.integers(1, 2)),
        group=draw(st.integers(1, 3)),
        length=draw(st.integers(0, 4)),
        new=new,
        past=past,
        size=draw(st.sampled_from([2, 5])),
        value_size=draw(st.sampled_from([2, 3])),
        nonpad=nonpad if cache == "nonpad" else None,
        mask=draw(st.sampled_from([None, "S", "LS", "1LS", "H1S", "B1LS", "BHLS", "11LS"])),
        short=draw(st.integers(0, max(0, total - least))),
        causal=draw(st.booleans()),
        scale=draw(st.sampled_from([None, 0.5, 0.0])),
        softcap=draw(st.sampled_from([0.0, 2.0])),
        left=draw(st.integers(-1, 3)),
        right=draw(st.integers(-1, 3)),
        mode=draw(st.integers(0, 3)),
        double=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


def _feeds(case: Case) -> dict[str, np.ndarray]:
    """Return all inputs in their four-dimensional form."""
    rng = np.random.default_rng(case.seed)
    heads, total = case.kv_heads * case.group, case.new + (case.past or 0)
    sizes = {"B": case.batch, "H": heads, "L": case.length, "S": total - case.short, "1": 1}

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims).astype(np.float64 if case.double else np.float32)

    feeds = {
        "Q": normal(case.batch, heads, case.length, case.size),
        "K": normal(case.batch, case.kv_heads, case.new, case.size),
        "V": normal(case.batch, case.kv_heads, case.new, case.value_size),
    }
    if case.mask:
        mask = normal(*(sizes[letter] for letter in case.mask))
        feeds["attn_mask"] = mask > -0.5 if case.seed % 2 else mask
    if case.past is not None:
        feeds["past_key"] = normal(case.batch, case.kv_heads, case.past, case.size)
        feeds["past_value"] = normal(case.batch, case.kv_heads, case.past, case.value_size)
    if case.nonpad is not None:
        feeds["nonpad_kv_seqlen"] = np.array(case.nonpad, np.int64)
    return feeds


def _attributes(case: Case) -> dict[str, Any]:
    heads = {"q_num_heads": case.kv_heads * case.group, "kv_num_heads": case.kv_heads}
    return {
        **PLAIN,
        **(heads if case.rank == 3 else {}),
        "is_causal": int(case.causal),
        "qk_matmul_output_mode": case.mode,
        "scale": case.scale,
        "softcap": case.softcap,
        "left_window_size": case.left,
        "right_window_size": case.right,
    }


@search(300)
@given(cases())
def test_every_attention_equals_the_text(case: Case) -> None:
    """Caches, grouped heads, masks, windows, softcap, both layouts, all outputs, empty sizes."""
    feeds = _feeds(case)
    expected = naive_attention(
        feeds,
        causal=case.causal,
        scale=case.scale,
        softcap=case.softcap,
        left=case.left,
        right=case.right,
    )
    given_feeds = {n: flat(v) if case.rank == 3 and n in "QKV" else v for n, v in feeds.items()}
    copies = {name: value.copy() for name, value in given_feeds.items()}
    y, present_key, present_value, scores = attention_23(**given_feeds, **_attributes(case))
    dtype = np.float64 if case.double else np.float32
    tolerance = 1e-12 if case.double else 2e-5
    for got, want in (
        (y, flat(expected.y) if case.rank == 3 else expected.y),
        (scores, expected.scores[case.mode]),
    ):
        assert got is not None and got.dtype == dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    for name, present in (("key", present_key), ("value", present_value)):
        parts = [feeds["K" if name == "key" else "V"]]
        if case.past is not None:
            parts.insert(0, feeds[f"past_{name}"])
        assert present is not None
        assert np.array_equal(present, np.concatenate(parts, axis=2))
    assert all(np.array_equal(given_feeds[name], copies[name]) for name in copies), "inputs changed"


def _is_right_in_onnx_reference(case: Case) -> bool:
    """Return whether onnx.reference 1.23.2 follows the text.

    It fails on empty sizes; and if causal it takes the number of queries from the mask, so that one
    row of mask hides as many keys from all queries as from the first, and one dimension fails.
    """
    rows_of_mask = case.mask is None or case.mask.endswith("LS") or case.length == 1
    is_causal = case.causal and (case.mask == "S" or not rows_of_mask)
    return bool(case.batch and case.new and case.length) and not is_causal


@search(100)
@given(cases().filter(_is_right_in_onnx_reference))
def test_onnx_reference_agrees_where_it_is_right(case: Case) -> None:
    """Its scores of mode 0 come after the softcap, not before."""
    feeds = _feeds(case)
    given_feeds = {n: flat(v) if case.rank == 3 and n in "QKV" else v for n, v in feeds.items()}
    expected = _compute_attention(**given_feeds, **_attributes(case))
    got = attention_23(**given_feeds, **_attributes(case))
    shown = 3 if case.softcap and case.mode == 0 else 4
    for one, other in zip(got[:shown], expected[:shown], strict=True):
        assert one is not None and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def _normal(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(dims).astype(dtype)


QKV = (_normal(2, 6, 4, 8), _normal(2, 3, 5, 8), _normal(2, 3, 5, 7))


def test_version_23_is_version_24_without_what_that_added() -> None:
    mask = _normal(2, 1, 4, 5)
    plain = {**PLAIN, "is_causal": 1, "softcap": 1.5}
    one = attention_23(*QKV, mask, **plain, context=Context(23, 4, print))
    other = attention_23(*QKV, mask, **plain)
    for a, b in zip(one, other, strict=True):
        assert a is not None and b is not None
        assert np.array_equal(a, b)


def test_a_last_dimension_of_one_is_broadcast_in_23_and_padded_in_24_with_a_warning() -> None:
    mask = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    wide = np.broadcast_to(mask, (4, 5))
    y_23, *_ = attention_23(*QKV, mask, **PLAIN, context=Context(23, 1, print))
    expected, *_ = attention_23(*QKV, wide, **PLAIN, context=Context(23, 1, print))
    assert y_23 is not None and np.array_equal(y_23, expected)
    said: list[str] = []
    y_24, *_ = attention_23(*QKV, mask, **PLAIN, context=Context(24, 1, said.append))
    first = np.repeat(QKV[2][:, :, :1], 2, axis=1)  # only the first key is seen
    assert y_24 is not None
    np.testing.assert_allclose(y_24, np.broadcast_to(first, y_24.shape), rtol=1e-6)
    (warning,) = said
    assert warning == (
        "`attn_mask` with shape (4, 1) is padded to 5 keys, and only the first is visible; its "
        "last dimension is not broadcast"
    )


def test_a_query_that_sees_no_key_gives_zero_whatever_stands_there() -> None:
    q, k, v = (a.copy() for a in QKV)
    k[1, :, 0], v[1, :, 0], q[1, :, 0] = np.nan, np.inf, np.inf
    nonpad = np.array([5, 3])  # the first of four queries in row 1 stands before all keys
    attributes = {**PLAIN, "is_causal": 1, "qk_matmul_output_mode": 3}
    y, _, _, weights = attention_23(q, k, v, nonpad_kv_seqlen=nonpad, **attributes)
    assert y is not None and weights is not None
    assert not y[1, :, 0].any() and not weights[1, :, 0].any()
    assert np.isnan(y[1, :, 1]).all()  # sees the key that is NaN
    assert not np.isnan(y[0]).any()


def test_a_hidden_score_of_plus_infinity_makes_its_row_nan_as_the_bias_is_added() -> None:
    q, k, v = (a.copy() for a in QKV)
    k[:, :, 4], q[:] = np.inf, 1.0
    mask = np.array([True, True, True, True, False])
    y, *_ = attention_23(q, k, v, mask, **PLAIN)
    assert y is not None and np.isnan(y).all()


def test_scores_of_minus_infinity_at_seen_keys_make_nan_not_zero() -> None:
    mask = np.full((4, 5), -np.finfo(np.float32).max, np.float32)
    q, k = QKV[0] * 1e19, QKV[1] * -1e19
    q, k = np.abs(q), -np.abs(k)
    y, *_ = attention_23(q, k, QKV[2], mask, **PLAIN)
    assert y is not None and np.isnan(y).all()


@each("mode", [0, 1, 2, 3])
def test_the_fourth_output_is_left_out_where_the_node_has_none(mode: int) -> None:
    attributes = {**PLAIN, "qk_matmul_output_mode": mode}
    assert attention_23(*QKV, **attributes, context=Context(24, 3, print))[3] is None
    assert attention_23(*QKV, **attributes, context=Context(24, 4, print))[3] is not None


def test_integers_as_a_mask_are_added_as_the_function_body_does() -> None:
    mask = np.arange(15, dtype=np.int32).reshape(3, 5)[:1] % 4
    y, *_ = attention_23(*QKV, mask, **PLAIN)
    expected, *_ = attention_23(*QKV, mask.astype(np.float32), **PLAIN)
    assert y is not None and np.array_equal(y, expected)
    assert not np.array_equal(y, attention_23(*QKV, **PLAIN)[0])  # type: ignore[arg-type]


def test_values_may_be_of_another_type() -> None:
    y, _, present, _ = attention_23(*QKV[:2], QKV[2].astype(np.float16), **PLAIN)
    expected, *_ = attention_23(*QKV, **PLAIN)
    assert y is not None and present is not None and expected is not None
    assert y.dtype == np.float32 and present.dtype == np.float16
    np.testing.assert_allclose(y, expected, atol=2e-3)
