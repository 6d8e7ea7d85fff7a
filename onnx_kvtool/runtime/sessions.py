"""The interface that both runtimes have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.choices import RuntimeName

__all__ = ["RUNTIMES", "Array", "Arrays", "RuntimeName", "Session", "open_session"]

Array = npt.NDArray[np.generic]
Arrays = dict[str, Array]

RUNTIMES: tuple[RuntimeName, ...] = ("onnxruntime", "reference")
"""The runtimes in the order in which they are tried: the fast one first."""


class Session(Protocol):
    """A loaded model that can be run any number of times."""

    @property
    def runtime(self) -> str:
        """Name and version of what runs the model, such as `reference 1.23.2`."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model.

        Args:
            inputs: One array per graph input that is not an initializer, by name. Strings are
                arrays of objects; bfloat16 and the types below 16 bits are those of ml_dtypes.

        Returns:
            Every graph output by name, with the dtype of its element type.

        Raises:
            RunFailed: If the model fails on these inputs.
        """
        ...


def open_session(
    runtime: RuntimeName, model: bytes, directory: str, *, optimize: bool = True
) -> Session:
    """Load a model in the runtime called `runtime`.

    Args:
        runtime: `onnxruntime` or `reference`.
        model: The serialised model.
        directory: Where locations of external data start; "" when there is no external data.
        optimize: Whether onnxruntime may optimise the graph; the reference never does.

    Raises:
        RuntimeUnavailable: If the runtime cannot load the model or computes it wrongly.
    """
    if runtime == "onnxruntime":
        from onnx_kvtool.runtime import onnxruntime

        return onnxruntime.Session(model, directory, optimize=optimize)
    if runtime == "reference":
        from onnx_kvtool.runtime import reference

        return reference.Session(model, directory)
    raise ValueError(f"unknown runtime {runtime!r}, expected one of {RUNTIMES}")
