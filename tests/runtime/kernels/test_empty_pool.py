"""A picture without pixels: each window sees padding alone."""

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.picture import max_pool


def test_a_picture_without_pixels_is_refused() -> None:
    with pytest.raises(KernelError, match="sees padding alone"):
        max_pool(np.zeros((2, 3, 0), np.float32), kernel_shape=[2], pads=[1, 2])
