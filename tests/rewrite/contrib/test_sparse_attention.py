"""SparseAttention in its standard form, against onnxruntime, of which past and present are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import Array, demand_same, model_of, normal, refusal, standard
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

B, H, KV, D, BLOCK, BLOCKS = 2, 4, 2, 16, 16, 3
OUTPUTS = ("y", "present_key", "present_value")
LISTS = ["block_row_indices", "block_col_indices"]
some = search(60)


def bound(inputs: Mapping[str, Any], **attributes: Any) -> dict[str, Array]:
    """Return what onnxruntime computes, which wants past and present to be one buffer."""
    proto = model_of("SparseAttention", inputs, OUTPUTS, "com.microsoft", LISTS, attributes)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding, held = session.io_binding(), {}
    for name, value in inputs.items():
        if value is None or name in LISTS:
            continue
        held[name] = ort.OrtValue.ortvalue_from_numpy(value.copy())
        binding.bind_ortvalue_input(name, held[name])
    binding.bind_output("y")
    for name in ("key", "value"):
        binding.bind_ortvalue_output(f"present_{name}", held[f"past_{name}"])
    session.run_with_iobinding(binding)
    return dict(
        zip(OUTPUTS, (value.numpy().copy() for value in binding.get_outputs()), strict=True)
    )


def one_by_one(inputs: Mapping[str, Any], **attributes: Any) -> dict[str, Array]:
    """Return what onnxruntime computes of each sequence of a batch alone.

    Together it takes the weights of all but the longest sequence from where those of others are.
    """
    whole = {*LISTS, "cos_cache", "sin_cache", "total_sequence_length"}
    found = []
    for row in range(B):
        alone = {
            name: value if value is None or name in whole else value[row : row + 1]
            for name, value in inputs.items()
        }
        alone["total_sequence_length"] = alone["key_total_sequence_lengths"]
        found.append(bound(alone, **attributes))
    return {name: np.concatenate([each[name] for each in found]) for name in OUTPUTS}


def lists_of(shown: Array) -> dict[str, Array]:
    """Return (layouts, blocks, blocks) as lists, which end in -1 where others are longer."""
    starts = np.pad(shown.sum(axis=2).cumsum(axis=1), ((0, 0), (1, 0)))
    columns = np.full((len(shown), int(starts[:, -1].max())), -1)
    for layout, table in enumerate(shown):
        found = np.nonzero(table)[1]
        columns[layout, : len(found)] = found
    return {LISTS[0]: starts.astype(np.int32), LISTS[1]: columns.astype(np.int32)}


def inputs_of(
    length: int,
    lengths: list[int],
    shown: Array,
    *,
    rows: int = BLOCK * BLOCKS,
    dtype: Any = np.float32,
    packed: bool = False,
    rotary: int | None = None,
) -> dict[str, Any]:
    """Return the inputs of a call after which the sequences have `lengths`."""
    new = {
        "query": normal(B, length, H * D, dtype=dtype),
        "key": normal(B, length, KV * D, dtype=dtype),
        "value": normal(B, length, KV * D, dtype=dtype, seed=4),
    }
    if packed:
        new = {"query": np.concatenate(list(new.values()), -1), "key": None, "value": None}
    angles = normal(BLOCK * BLOCKS, 8, seed=5)
    return {
        **new,
        "past_key": normal(B, KV, rows, D, dtype=dtype, seed=6),
        "past_value": normal(B, KV, rows, D, dtype=dtype, seed=7),
        **lists_of(shown),
        "total_sequence_length": np.array([max(lengths)], np.int32),
        "key_total_sequence_lengths": np.array(lengths, np.int32),
        "cos_cache": np.cos(angles).astype(dtype) if rotary else None,
        "sin_cache": np.sin(angles).astype(dtype) if rotary else None,
    }


def attributes_of(**given_: Any) -> dict[str, Any]:
    sizes = {"num_heads": H, "kv_num_heads": KV, "sparse_block_size": BLOCK}
    return sizes | {name: value for name, value in given_.items() if value is not None}


def drawn(seed: int, layouts: int, density: float) -> Array:
    """Return tables in which each block of queries sees some block up to its own."""
    rng = np.random.default_rng([seed, layouts])
    shown = rng.random((layouts, BLOCKS, BLOCKS)) < density
    for table in shown:
        table[np.arange(BLOCKS), [rng.integers(row + 1) for row in range(BLOCKS)]] = True
    return np.tril(shown)


CALLS = st.sampled_from(
    [(1, [1, 1]), (5, [5, 5]), (40, [40, 40]), (1, [7, 33]), (1, [48, 17]), (4, [20, 35])]
)


@some
@given(
    opset=st.sampled_from([24, 21, 18, 13, 11]),
    dtype=st.sampled_from([np.float32, np.float16]),
    call=CALLS,
    seed=st.integers(0, 20),
    layouts=st.sampled_from([1, 2, 4]),
    density=st.sampled_from([0.0, 0.4, 1.0]),
    packed=st.booleans(),
    rotary=st.sampled_from([None, 0, 1]),
    interleaved=st.sampled_from([None, 0, 1]),
    scale=st.sampled_from([None, 0.3]),
    rows=st.sampled_from([48, 60]),
)
def test_sparse_attention(
    opset: int,
    dtype: Any,
    call: tuple[int, list[int]],
    seed: int,
    layouts: int,
    density: float,
    packed: bool,
    rotary: int | None,
    interleaved: int | None,
    scale: float | None,
    rows: int,
) -> None:
    length, lengths = call
    shown = drawn(seed, layouts, density)
    inputs = inputs_of(length, lengths, shown, rows=rows, dtype=dtype, packed=packed, rotary=rotary)
    attributes = attributes_of(do_rotary=rotary, rotary_interleaved=interleaved, scale=scale)
    expected = one_by_one(inputs, **attributes)
    demand_same(
        "SparseAttention",
        inputs,
        OUTPUTS,
        at=opset,
        constants=LISTS,
        expected=expected,
        **attributes,
    )


def test_a_batch_of_one_length_is_what_its_sequences_are_alone() -> None:
    inputs = inputs_of(4, [35, 35], drawn(3, 2, 0.4))
    alone, together = one_by_one(inputs, **attributes_of()), bound(inputs, **attributes_of())
    for name, value in together.items():
        np.testing.assert_allclose(alone[name], value, rtol=1e-5, atol=1e-6)


def test_what_nobody_hides_needs_no_mask() -> None:
    for shown, is_masked in ((drawn(0, 2, 1.0), False), (drawn(0, 2, 0.0), True)):
        model, outcome = standard(
            "SparseAttention",
            inputs_of(1, [7, 33], shown),
            OUTPUTS,
            constants=LISTS,
            **attributes_of(),
        )
        assert not outcome.refused
        (attention,) = [node for node in model.graph if node.op_type == "Attention"]
        assert (attention.inputs[3] is not None) == is_masked


def test_lists_that_are_fed_are_refused() -> None:
    inputs = inputs_of(1, [7, 33], drawn(0, 2, 0.5))
    said = refusal("SparseAttention", inputs, OUTPUTS, **attributes_of())
    assert said == "not-constant: `block_row_indices` of `SparseAttention` is no constant"


def hiding(row: int) -> Array:
    table = np.tril(np.ones((1, BLOCKS, BLOCKS), bool))
    table[0, row] = False
    return table


def ahead() -> Array:
    table = np.tril(np.ones((1, BLOCKS, BLOCKS), bool))
    table[0, 0, 2] = True
    return table


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        pytest.param(hiding(1), "row 1 of `block_col_indices`", id="a row that sees nothing"),
        pytest.param(ahead(), "is [0, 2], expected different blocks from 0 to 0", id="one behind"),
        pytest.param(np.tril(np.ones((3, BLOCKS, BLOCKS), bool)), "3 layouts", id="three layouts"),
    ],
)
def test_lists_that_onnxruntime_reads_otherwise_are_refused(shown: Array, words: str) -> None:
    inputs = inputs_of(1, [7, 33], shown)
    found = refusal("SparseAttention", inputs, OUTPUTS, constants=LISTS, **attributes_of())
    assert words in found
