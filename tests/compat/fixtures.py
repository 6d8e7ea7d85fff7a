"""The fixtures lowered for a release, run in it, and compared with what was recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from tests.compat.environments import run_in

__all__ = ["FIXTURES", "difference", "limit_of", "lowered_file"]

_NATIVE = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "native"

FIXTURES = (
    "llama_static",
    "llama_static_fp16",
    "mistral_sliding_bias_static",
    "gemma4_hybrid_static",
    "mobius_block_bias_int64_2d",
)


def limit_of(fixture: str) -> float:
    """Return the largest difference that the element type of a fixture justifies."""
    return 5e-3 if fixture.endswith("fp16") else 1e-5


def lowered_file(fixture: str, target: str, directory: Path) -> Path:
    """Write a fixture for a release and return the path."""
    result, _ = lower(_NATIVE / f"{fixture}.onnx", target=target, verify=False)
    path = directory / f"{fixture}.onnx"
    path.write_bytes(serialize(result))
    return path


def difference(fixture: str, model: Path, runtime: str, version: str | None) -> float:
    """Run a lowered fixture in a release; return the largest difference from what was recorded.

    The recorded outputs are those of the native model in onnxruntime 1.31.1.

    Raises:
        RuntimeFailed: If the release does not load or run it.
        AssertionError: If an output has another shape or element type than the recorded one, or
            holds a number that is not finite where the recorded one is.
    """
    with np.load(_NATIVE / f"{fixture}.npz") as arrays:
        feeds = {name[3:]: arrays[name] for name in arrays.files if name.startswith("in:")}
        recorded = {name[4:]: arrays[name] for name in arrays.files if name.startswith("out:")}
    names = [value.name for value in onnx.load(model).graph.output]
    actual = dict(zip(names, run_in(runtime, version, model, feeds), strict=True))
    assert set(actual) == set(recorded)
    return max(_largest(actual[name], recorded[name], name) for name in recorded)


def _largest(actual: np.ndarray, recorded: np.ndarray, name: str) -> float:
    assert (actual.shape, actual.dtype) == (recorded.shape, recorded.dtype), name
    same = actual == recorded
    pair = actual[~same].astype(np.float64), recorded[~same].astype(np.float64)
    assert all(np.isfinite(array).all() for array in pair), name
    return float(np.max(np.abs(pair[0] - pair[1]), initial=0.0))
