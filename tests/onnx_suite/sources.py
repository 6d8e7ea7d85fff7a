"""The tests of onnx itself, out of the source distribution of the installed release."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import onnx

from tests.compat.environments import environment

__all__ = ["onnx_tests"]


@cache
def onnx_tests() -> Path:
    """Return the directory of onnx's tests, fetched from the package index on first use.

    pip has no command to fetch a source distribution and leave it alone: it asks the build backend
    for metadata, which needs a compiler. Without one it fails, after it has unpacked the sources
    into its temporary directory, where it is told to leave them.

    Raises:
        FileNotFoundError: If they could not be fetched.
    """
    python = environment("pip", ("pip",))
    home = python.parent.parent.parent / f"onnx-{onnx.__version__}"
    found = sorted(home.glob("*/*/tests/python/shape_inference_test.py"))
    if not found:
        home.mkdir(parents=True, exist_ok=True)
        asked = ("--no-clean", "--no-deps", "--no-build-isolation", "--no-binary", ":all:")
        result = subprocess.run(
            [python, "-m", "pip", "download", *asked, f"onnx=={onnx.__version__}"],
            cwd=home,
            env={**os.environ, "TMPDIR": str(home)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        found = sorted(home.glob("*/*/tests/python/shape_inference_test.py"))
        if not found:
            raise FileNotFoundError(f"pip did not fetch the sources of onnx:\n{result.stderr}")
    return found[0].parent
