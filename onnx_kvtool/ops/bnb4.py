"""What the codes of 4 bits of bitsandbytes stand for, which MatMulBnb4 of onnxruntime has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["numbers_of_codes"]

_FP4 = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def numbers_of_codes(quant_type: int) -> npt.NDArray[np.float32]:
    """Return the number of each code, (16,), float32.

    The tables are those of onnxruntime 1.32.0 (`blockwise_quant_block_bnb4.h`), which its kernel
    gives back for a unit matrix.

    Args:
        quant_type: 0 for FP4, of which codes from 8 on are those before with the other sign; 1 for
            NF4.
    """
    if quant_type == 1:
        return np.array(_NF4, np.float32)
    half = np.array(_FP4, np.float32)
    return np.concatenate([half, -half])
