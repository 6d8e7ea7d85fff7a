"""numpy as kernels find it in a running model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _numpy_does_not_warn() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
