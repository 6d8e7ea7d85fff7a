"""Runs the cases whose paths it reads, for runtime_operators.py, where kvtool is not installed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "compat"))

from run_model import LOADERS  # type: ignore[import-not-found]

_FREE_OF_TYPES = ("opencv",)
"""Runtimes that give some results in another element type, as their notes in the data say."""


def judge(runtime: str, stem: str) -> str:
    with np.load(stem + ".in.npz") as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    with np.load(stem + ".expected.npz") as arrays:
        expected = [arrays[str(index)] for index in range(len(arrays.files))]
    try:
        found = LOADERS[runtime](stem + ".onnx")(feeds)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a runtime throws
        return "refused: " + " ".join(str(error).split())[:160]
    for actual, wanted in zip(found, expected, strict=False):
        if actual.shape != wanted.shape:
            return f"wrong: shape {actual.shape}, expected {wanted.shape}"
        if actual.dtype != wanted.dtype and runtime not in _FREE_OF_TYPES:
            return f"wrong: {actual.dtype}, expected {wanted.dtype}"
        limit = 5e-3 if wanted.dtype.itemsize == 2 else 1e-4
        if not np.allclose(actual, wanted, rtol=limit, atol=limit, equal_nan=True):
            return "wrong: numbers"
    return "right" if len(found) >= len(expected) else "wrong: outputs missing"


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in sys.stdin.read().splitlines():
        signal.alarm(60)
        print("answer", judge(sys.argv[1], line.strip()), flush=True)
