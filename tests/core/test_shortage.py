"""What the machine is to blame for is told from what kvtool is."""

from __future__ import annotations

import errno

import pytest

from onnx_kvtool.core.machine import as_shortage
from tests.grids import each


@each(
    ("error", "message"),
    [
        pytest.param(MemoryError(), "there is not enough memory", id="no memory"),
        pytest.param(
            OSError(errno.ENOMEM, "Cannot allocate memory"),
            "there is not enough memory",
            id="no memory for the system",
        ),
        pytest.param(
            ImportError("libx.so: failed to map segment\n from shared object", name="onnx"),
            "a library cannot be loaded: libx.so: failed to map segment from shared object",
            id="a library that does not load",
        ),
        pytest.param(
            ModuleNotFoundError(name="numpy"),
            "a library cannot be loaded: numpy",
            id="a library that is not there",
        ),
        pytest.param(
            ImportError(), "a library cannot be loaded: without a reason", id="no reason given"
        ),
    ],
)
def test_the_machine_falls_short(error: Exception, message: str) -> None:
    found = as_shortage(error)
    assert found is not None
    assert (found.message, found.exit_code) == (message, 3)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError("x"), id="any other exception"),
        pytest.param(OSError(errno.EIO, "Input/output error"), id="another error of the system"),
        pytest.param(ImportError("x", name="onnx_kvtool.core"), id="a module of kvtool itself"),
    ],
)
def test_kvtool_is_to_blame(error: Exception) -> None:
    assert as_shortage(error) is None
