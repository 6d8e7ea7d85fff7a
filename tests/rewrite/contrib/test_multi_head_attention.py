"""MultiHeadAttention and Attention of onnxruntime as Attention of ONNX."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import Arrays, Dims, demand_same, refusal
from tests.runtime.kernels.contrib.node import needs_onnxruntime
from tests.runtime.kernels.contrib.test_multi_head_attention import (
    ALL,
    BUFFER,
    CALLS,
    CROSS,
    INSIDE,
    NAMES,
    ONE,
    PAST,
    PROJECTED,
    PROJECTIONS,
    B,
    D,
    H,
    L,
    S,
    lengths,
    normal,
    typed,
)

pytestmark = needs_onnxruntime

OPSETS = st.sampled_from([24, 23, 18, 13])


def symbolic(inputs: Arrays) -> dict[str, Dims]:
    """Return dimensions of inputs of which batch and rows are names, or unknown."""
    found: dict[str, Dims] = {}
    query = inputs.get("query")
    for name, value in inputs.items():
        if value is None or name in ("bias", "weights", "past_sequence_length"):
            continue
        dims: Dims = list(value.shape)
        if name in ("query", "key", "value", "input"):
            dims[0] = "batch"
            is_self = query is None or value.shape[1] == query.shape[1]
            dims[2 if value.ndim == 4 else 1] = "length" if is_self else "keys"
        elif name == "attention_bias":
            dims[2:] = [None, None]
        elif name == "past":
            dims[1], dims[3] = "batch", "past"
        elif name.startswith("past"):
            dims[0], dims[2] = "batch", "past"
        elif value.shape[0] == B:
            dims = ["batch", *([None] * (value.ndim - 1))]
        found[name] = dims
    return found


@search(90)
@given(
    case=st.sampled_from(range(len(CALLS))),
    at=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    named=st.booleans(),
)
def test_multi_head_attention(case: int, at: int, dtype: Any, named: bool) -> None:
    inputs, outputs, attributes = CALLS[case].values
    given_ = typed(inputs, NAMES, dtype)
    limit = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}[np.dtype(dtype).name]
    demand_same(
        "MultiHeadAttention",
        given_,
        outputs,
        at=at,
        tolerance=limit,
        dims=symbolic(given_) if named else None,
        num_heads=H,
        **attributes,
    )


@search(60)
@given(
    case=st.sampled_from(range(len(PROJECTIONS))),
    at=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16]),
    named=st.booleans(),
)
def test_attention(case: int, at: int, dtype: Any, named: bool) -> None:
    inputs, outputs, attributes = PROJECTIONS[case].values
    given_ = typed(inputs, INSIDE, dtype)
    mask = given_["mask_index"]
    has_starts = mask is not None and mask.ndim == 1 and len(mask) > B
    demand_same(
        "Attention",
        given_,
        outputs,
        at=at,
        tolerance=2e-5 if dtype == np.float32 else 3e-2,
        dims=symbolic(given_) if named and not has_starts else None,
        num_heads=H,
        **attributes,
    )


@pytest.mark.long
def test_one_query_of_other_keys_sees_them_all() -> None:
    inputs = CROSS | {"query": normal(B, 1, H * D)}
    for dims in (None, symbolic(inputs)):
        demand_same(
            "MultiHeadAttention", typed(inputs, NAMES, np.float32), ONE,
            num_heads=H, unidirectional=1, dims=dims,
        )  # fmt: skip


def test_a_mask_and_a_bias_in_a_buffer() -> None:
    buffers = {
        "past_key": normal(B, H, BUFFER, D),
        "past_value": normal(B, H, BUFFER, D, seed=2),
        "past_sequence_length": lengths(3),
        "attention_bias": normal(B, H, L, 3 + L),
    }
    own = {name: normal(B, L, H * D, seed=i) for i, name in enumerate(("query", "key", "value"))}
    given_ = typed(own | buffers, NAMES, np.float32)
    demand_same("MultiHeadAttention", given_, ALL, num_heads=H)


REFUSED = {
    "a query alone": ("MultiHeadAttention", {"query": normal(B, L, H * D)}, ONE, "packed"),
    "beams": (
        "MultiHeadAttention",
        CROSS | {"cache_indirection": np.zeros((B, 1, S), np.int32)},
        ONE,
        "`cache_indirection`",
    ),
    "a past without a present": ("MultiHeadAttention", PAST, ONE, "without outputs"),
    "packed batches": (
        "MultiHeadAttention",
        CROSS | {"key_padding_mask": lengths(*range(8))},
        ONE,
        "8 elements",
    ),
    "a mask of a whole buffer": (
        "Attention",
        PROJECTED | {"mask_index": np.ones((B, 1, 12, 12), np.int32)},
        ONE,
        "rank",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    op, inputs, outputs, word = REFUSED[name]
    ordered = {n: inputs.get(n) for n in (NAMES if op == "MultiHeadAttention" else INSIDE)}
    assert word in refusal(op, ordered, outputs, num_heads=H)
