"""The choice of the next token: the likeliest one, or a random one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.sessions import Array

Tokens = npt.NDArray[np.int64]


def choosing(
    temperature: float, top_k: int | None, top_p: float | None, seed: int
) -> Callable[[Array], Tokens]:
    """Return a function that chooses a token for each sequence; see `Decoder.generate`.

    Raises:
        UsageError: If a number is out of range, or a limit is given for no random choice.
    """
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UsageError(f"`temperature` is {temperature}, expected 0 or more")
    if top_k is not None and top_k < 1:
        raise UsageError(f"`top_k` is {top_k}, expected at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise UsageError(f"`top_p` is {top_p}, expected more than 0 and at most 1")
    if seed < 0:
        raise UsageError(f"`seed` is {seed}, expected at least 0")
    if temperature == 0:
        if top_k is not None or top_p is not None:
            raise UsageError(
                "`top_k` and `top_p` limit a random choice, and temperature 0 makes none",
                help="give a `temperature`, such as 1.0",
            )
        return likeliest
    rng = np.random.default_rng(seed)

    def drawn(logits: Array) -> Tokens:
        last = _last(logits).astype(np.float64)
        order = np.argsort(-last, axis=-1, kind="stable")
        ranked = np.take_along_axis(last, order, axis=-1)[:, :top_k]
        if not np.isfinite(ranked[:, 0]).all():  # a NaN is sorted to the end
            raise RunFailed(f"the largest logits are {ranked[:, 0]}, expected finite numbers")
        with np.errstate(over="ignore"):  # far below the first is no chance at all
            odds = np.nan_to_num(np.exp((ranked - ranked[:, :1]) / temperature))
        odds /= odds.sum(axis=-1, keepdims=True)
        if top_p is not None:  # the token that crosses it is the last one
            odds[odds.cumsum(axis=-1) - odds >= top_p] = 0
        sums = odds.cumsum(axis=-1)
        place = (sums <= rng.random((len(sums), 1)) * sums[:, -1:]).sum(axis=-1)
        place = np.minimum(place, (odds > 0).sum(axis=-1) - 1)  # where a product is rounded up
        return np.take_along_axis(order, place[:, None], axis=-1)[:, 0].astype(np.int64)

    return drawn


def likeliest(logits: Array) -> Tokens:
    """Return the likeliest token of each sequence, (B,), by its last logits (B, S, V) or (B, V).

    Raises:
        RunFailed: If the logits are of another rank, or of no size.
    """
    return np.asarray(np.argmax(_last(logits).astype(np.float32), axis=-1), np.int64)


def _last(logits: Array) -> Array:
    if logits.ndim not in (2, 3) or not logits.size:
        text = f"the logits are of shape {logits.shape}, expected (B, S, V) or (B, V)"
        raise RunFailed(text)
    return logits[:, -1] if logits.ndim > 2 else logits
