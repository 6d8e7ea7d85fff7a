"""A decoder in onnxruntime whose caches are updated in place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.real_models import Configuration
from benchmarks.session import session

__all__ = ["Bound"]

_TYPES = {"fp32": np.float32, "fp16": np.float16}


class Bound:
    """A session on one thread, for one sequence.

    Args:
        path: The model.
        configuration: Its dimensions; the caches are of the type of the model.
    """

    def __init__(self, path: Path, configuration: Configuration) -> None:
        self._c = configuration
        self._session = session(str(path))
        self._dtype = _TYPES[configuration.dtype]
        self._caches: dict[str, Any] = {}
        rng = np.random.default_rng(0)
        dims = (1, configuration.capacity, configuration.kv_width)
        for layer in range(configuration.layers):
            for kind in ("key", "value"):
                rows = rng.standard_normal(dims, dtype=np.float32).astype(self._dtype)
                cache = ort.OrtValue.ortvalue_from_numpy(rows)
                self._caches[f"{kind}_cache.{layer}"] = cache
        self._length = 0

    def bind(self, length: int) -> None:
        """Prepare steps of so many tokens; the caches stay."""
        self._length = length
        self._binding = self._session.io_binding()
        shapes = {"input_ids": (1, length), "position_ids": (1, length)}
        shapes |= {"write_indices": (1,), "nonpad_kv_seqlen": (1,)}
        self._values = {
            name: ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.int64))
            for name, shape in shapes.items()
        }
        tokens = np.arange(length, dtype=np.int64)[None] % self._c.vocabulary
        self._values["input_ids"].update_inplace(tokens)
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, cache in self._caches.items():
            self._binding.bind_ortvalue_input(name, cache)
            self._binding.bind_ortvalue_output(f"updated_{name}", cache)
        logits = np.zeros((1, length, self._c.vocabulary), self._dtype)
        self._logits = ort.OrtValue.ortvalue_from_numpy(logits)
        self._binding.bind_ortvalue_output("logits", self._logits)

    def step(self, start: int) -> float:
        """Write behind `start` and return the seconds that the processor worked on it."""
        positions = start + np.arange(self._length, dtype=np.int64)[None]
        self._values["position_ids"].update_inplace(positions)
        self._values["write_indices"].update_inplace(np.array([start], np.int64))
        valid = np.array([start + self._length], np.int64)
        self._values["nonpad_kv_seqlen"].update_inplace(valid)
        begin = time.thread_time()
        self._session.run_with_iobinding(self._binding)
        return time.thread_time() - begin

    def logits(self) -> Any:
        """Return those of the last step, as float32."""
        return self._logits.numpy().astype(np.float32)
