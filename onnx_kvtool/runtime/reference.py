"""The reference runtime behind the interface of both runtimes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_kvtool import __version__
from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Arrays

VERSION: str = __version__
"""Version of the reference runtime, which is that of kvtool."""


class Session:
    """A model loaded by the reference runtime; see `sessions.Session`.

    Slower than onnxruntime, but strict. It also runs bfloat16, types below 16 bits and strings, for
    which onnxruntime has no kernels.

    Args:
        model: The serialised model.
        directory: The directory of external data; "" if there is none. Locations outside of it are
            refused.

    Raises:
        RuntimeUnavailable: If the model is no ONNX model, has an operator without implementation
            (most contrib operators, or a domain that is not imported), or its external data is
            missing.
    """

    def __init__(self, model: bytes, directory: str) -> None:
        try:
            self._evaluator = Evaluator(deserialize(model, directory))
        except (UnreadableModel, RuntimeUnavailable) as error:
            raise RuntimeUnavailable(
                f"reference {VERSION} cannot load the model: {error.message}", help=error.help
            ) from error

    @property
    def runtime(self) -> str:
        """Name and version."""
        return self._evaluator.runtime

    def run(self, inputs: Mapping[str, object]) -> Arrays:
        """Run the model; see `sessions.Session.run`."""
        try:
            values = self._evaluator.run(inputs).values
        except RunFailed as error:
            raise RunFailed(f"{self.runtime}: {error.message}", help=error.help) from error
        for name, value in values.items():
            if not isinstance(value, np.ndarray):
                raise RunFailed(f"output `{name}` is a {type(value).__name__}, expected a tensor")
        return values
