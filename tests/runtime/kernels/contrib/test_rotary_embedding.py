"""RotaryEmbedding of onnxruntime against it, and against rotations of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

B, L, H, D, M = 2, 5, 3, 8, 11

POSITIONS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def inputs_of(
    rank: int = 3, width: int = D, positions: Any = POSITIONS, dtype: Any = np.float32
) -> dict[str, np.ndarray[Any, Any] | None]:
    angles = np.outer(np.arange(M), 1000.0 ** -np.linspace(0, 1, width // 2))
    x = np.random.default_rng(5).standard_normal((B, L, H * D))
    if rank == 4:
        x = x.reshape(B, L, H, D).transpose(0, 2, 1, 3)
    return {
        "input": np.ascontiguousarray(x.astype(dtype)),
        "position_ids": np.asarray(positions, np.int64),
        "cos_cache": np.cos(angles).astype(dtype),
        "sin_cache": np.sin(angles).astype(dtype),
    }


PARTIAL = {"num_heads": H, "rotary_embedding_dim": 4}


@pytest.mark.long
@needs_onnxruntime
@each("dtype", [np.float32, np.float16])
@each("interleaved", [0, 1])
@each("positions", [POSITIONS, [2], 2])
@each(
    ("rank", "width", "attributes"),
    [
        pytest.param(3, D, {}, id="three dimensions"),
        pytest.param(3, D, {"num_heads": H}, id="three dimensions, and their heads"),
        pytest.param(4, D, {}, id="four dimensions"),
        pytest.param(3, 4, PARTIAL, id="half of each head"),
        pytest.param(4, 4, PARTIAL, id="half of each head of four dimensions"),
    ],
)
def test_against_onnxruntime(
    rank: int,
    width: int,
    attributes: dict[str, int],
    positions: Any,
    interleaved: int,
    dtype: Any,
) -> None:
    inputs = inputs_of(rank, width, positions, dtype)
    given = {**attributes, "interleaved": interleaved}
    found, expected = (run("RotaryEmbedding", inputs, **given)["y"] for run in (ours, theirs))
    assert found.dtype == expected.dtype
    limit = 1e-6 if dtype == np.float32 else 4e-3
    np.testing.assert_allclose(found, expected, rtol=limit, atol=limit)


def test_a_single_position_counts_on() -> None:
    counted = np.broadcast_to(2 + np.arange(L), (B, L))
    found = ours("RotaryEmbedding", inputs_of(positions=[2]))["y"]
    assert np.array_equal(found, ours("RotaryEmbedding", inputs_of(positions=counted))["y"])
