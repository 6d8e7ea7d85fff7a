"""EmbedLayerNormalization of `com.microsoft`: rows of up to three tables, summed and normalized."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.codes import numbers_of
from onnx_kvtool.runtime.kernels.contrib.normalization import layer_normalization
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["embed_layer_normalization", "q_embed_layer_normalization"]


def embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float,
    mask_index_type: int | None,
) -> tuple[Array, ...]:
    """Add the embeddings of each token, standardize the last axis, scale and shift.

    Semantics are those of docs/ContribOperators.md, and onnxruntime 1.31.1 on a CPU. Everything is
    computed in float32 and rounded once.

    Args:
        input_ids: (B, L), rows of `word_embedding`; none is counted from the back.
        segment_ids: (B, L), rows of `segment_embedding`; both or neither.
        word_embedding: (words, hidden).
        position_embedding: (positions, hidden).
        segment_embedding: (segments, hidden).
        gamma: (hidden,).
        beta: (hidden,).
        mask: (B, L), 1 for a token that counts.
        position_ids: (B, L) or (1, L), rows of `position_embedding`; None for 0 to L - 1.
        epsilon: Added to the variance.
        mask_index_type: Has no meaning but for shape inference.

    Returns:
        output, (B, L, hidden); mask_index, (B,), int32, how many ones the mask has in each row, 0
        without a mask; and embedding_sum, (B, L, hidden).

    Raises:
        KernelError: For shapes that do not fit, a row that a table does not have, and segments
            without their table.
    """
    if input_ids.ndim != 2:
        raise KernelError(f"`input_ids` has shape {input_ids.shape}, expected two dimensions")
    if (segment_ids is None) != (segment_embedding is None):
        raise KernelError("expected both `segment_ids` and `segment_embedding`, or neither")
    batch, length = input_ids.shape
    hidden = gamma.shape
    check_shape("beta", beta.shape, hidden, "the shape of `gamma`")
    positions: Array = np.arange(length)[None]
    if position_ids is not None:
        rows = 1 if position_ids.shape[:1] == (1,) else batch
        check_shape("position_ids", position_ids.shape, (rows, length), "the shape of `input_ids`")
        positions = position_ids
    tables = [
        (input_ids, "input_ids", word_embedding, "word_embedding"),
        (positions, "position_ids", position_embedding, "position_embedding"),
    ]
    if segment_ids is not None and segment_embedding is not None:
        check_shape("segment_ids", segment_ids.shape, (batch, length), "the shape of `input_ids`")
        tables.append((segment_ids, "segment_ids", segment_embedding, "segment_embedding"))
    with np.errstate(all="ignore"):
        total = np.zeros((batch, length, *hidden), np.float32)
        for given in tables:
            total += _looked_up(*given, hidden)
    y, *_ = layer_normalization(total, gamma, beta, axis=-1, epsilon=epsilon, stash_type=1)
    counts = np.zeros(batch, np.int32)
    if mask is not None:
        check_shape("mask", mask.shape, (batch, length), "the shape of `input_ids`")
        counts = np.equal(mask, 1).sum(axis=1, dtype=np.int32)
    return y, counts, narrowed(total, word_embedding.dtype)


def _looked_up(
    ids: Array, ids_name: str, table: Array, name: str, hidden: tuple[int, ...]
) -> Reals:
    """Return a row of the table for each token."""
    count = table.shape[0] if table.ndim else 0
    check_shape(name, table.shape, (count, *hidden), "rows as long as `gamma`")
    indices = ids.astype(np.int64)
    wrong = np.argwhere((indices < 0) | (indices >= count))
    if len(wrong):
        row, token = wrong[0].tolist()
        raise KernelError(
            f"`{ids_name}`[{row}, {token}] is {indices[row, token]}, expected 0 to {count - 1}: "
            f"axis 0 of `{name}` with shape {table.shape}"
        )
    return widened(table[indices])


def q_embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding_quant: Array,
    position_embedding_quant: Array,
    segment_embedding: Array | None,
    gamma_quant: Array,
    beta_quant: Array,
    mask: Array | None,
    word_embedding_scale: Array,
    position_embedding_scale: Array,
    segment_embedding_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_embedding_zero_point: Array,
    position_embedding_zero_point: Array,
    segment_embedding_zero_point: Array | None,
    gamma_zero_point: Array,
    beta_zero_point: Array,
    *,
    epsilon: float,
) -> tuple[Array, ...]:
    """Return what `embed_layer_normalization` does of the numbers that tables of codes hold.

    Each table has one scale and one zero point; those of the segments come with their table.

    Raises:
        KernelError: As `embed_layer_normalization`.
    """
    segments = None
    if segment_embedding is not None and segment_embedding_scale is not None:
        given = (segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
        segments = numbers_of(*given, "segment_embedding")
    words = (word_embedding_quant, word_embedding_scale, word_embedding_zero_point)
    places = (position_embedding_quant, position_embedding_scale, position_embedding_zero_point)
    y, counts, _ = embed_layer_normalization(
        input_ids,
        segment_ids,
        numbers_of(*words, "word_embedding"),
        numbers_of(*places, "position_embedding"),
        segments,
        numbers_of(gamma_quant, gamma_scale, gamma_zero_point, "gamma"),
        numbers_of(beta_quant, beta_scale, beta_zero_point, "beta"),
        mask,
        epsilon=epsilon,
        mask_index_type=None,
    )
    return y, counts
