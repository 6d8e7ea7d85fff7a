"""The forms in which an attention of `com.microsoft` is told which keys are padding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["padding_bias"]


def padding_bias(name: str, mask: Array, sizes: tuple[int, int, int]) -> npt.NDArray[np.float32]:
    """Return 1 where a key is padding, and 0 elsewhere.

    Args:
        name: The input of the node, for the message.
        mask: int32. (B,), the valid keys, padding behind them; (2 B,), for `mask_index` alone, the
            same and then the keys before the first valid one; (B, T) or (B, L, T), above 0 where a
            key is valid.
        sizes: B, L and T.

    Returns:
        Broadcasts to (B, 1, L, T).

    Raises:
        KernelError: For another shape, as that of packed batches and of masks for a whole buffer.
    """
    batch, length, total = sizes
    keys = np.arange(total)
    numbers = mask.astype(np.int64)
    valid: npt.NDArray[np.bool_]
    if mask.shape == (batch,):
        valid = (keys < numbers[:, None])[:, None, None]
    elif mask.shape == (2 * batch,) and name == "mask_index":
        ends, starts = numbers[:batch, None], numbers[batch:, None]
        valid = ((keys < ends) & (keys >= starts))[:, None, None]
    elif mask.shape == (batch, total):
        valid = (numbers > 0)[:, None, None]
    elif mask.shape == (batch, length, total):
        valid = (numbers > 0)[:, None]
    else:
        raise KernelError(
            f"`{name}` has shape {mask.shape}, expected {(batch,)}, {(batch, total)} or "
            f"{(batch, length, total)}: (batch, query rows, all key rows)"
        )
    return (~valid).astype(np.float32)
