"""Models run by onnx's reference evaluator, with our own kernels where onnx's are too lenient."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_model
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.tensor_scatter import tensor_scatter
from onnx_kvtool.runtime.sessions import Array, Arrays

__all__ = ["VERSION", "Session"]

VERSION: str = onnx.__version__
"""Version of the installed onnx."""


class TensorScatter(OpRun):
    """TensorScatter-24 with our kernel.

    onnx's own (1.23.2) wraps negative starts in silence, takes `write_indices` of any type and
    length, and before 1.23.1 its circular mode is wrong.
    """

    op_domain = ""

    def _run(
        self,
        past_cache: Array,
        update: Array,
        write_indices: Array | None = None,
        mode: str | None = None,
        axis: int | None = None,
    ) -> tuple[Array]:
        if mode is None or axis is None:
            raise RuntimeUnavailable("onnx.reference did not bind the defaults of TensorScatter")
        return tensor_scatter(past_cache, update, write_indices, axis=axis, mode=mode)


class _Evaluator(ReferenceEvaluator):
    """The evaluator with our kernels everywhere.

    onnx.reference (1.23.2) makes an evaluator of the same class for each function and each body,
    but does not hand its new operators on to those of functions.
    """

    def __init__(self, proto: Any, *args: Any, **options: Any) -> None:
        super().__init__(proto, *args, **{**options, "new_ops": [TensorScatter]})


class Session:
    """A model loaded by onnx.reference; see `sessions.Session`.

    Slow, but runs bfloat16, the types below 16 bits and strings, for which onnxruntime lacks
    kernels. All weights are held in memory, external ones included.

    Args:
        model: The serialised model.
        directory: Where locations of external data start; "" when there is none. onnx itself
            refuses locations that leave the directory.

    Raises:
        RuntimeUnavailable: If the model is no ONNX model, has an operator without implementation
            (contrib operators, or a domain that is not imported), or its external data is missing.
    """

    def __init__(self, model: bytes, directory: str) -> None:
        try:
            proto = onnx.ModelProto.FromString(model)
            if not proto.HasField("graph"):
                raise ValueError("the message holds no graph")
            load_external_data_for_model(proto, directory)
            self._evaluator = _Evaluator(proto)
        # The evaluator is plain Python: it signals what it does not know by whatever its code
        # runs into (NotImplementedError, KeyError, TypeError, ...).
        except Exception as error:
            raise RuntimeUnavailable(
                f"{self.runtime} cannot load the model: {_first_line(error)}"
            ) from error
        initializers = {tensor.name for tensor in proto.graph.initializer}
        self._required = [v.name for v in proto.graph.input if v.name not in initializers]

    @property
    def runtime(self) -> str:
        """Name and version."""
        return f"reference {VERSION}"

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model; see `sessions.Session.run`."""
        if missing := [name for name in self._required if name not in inputs]:
            raise RunFailed(f"{self.runtime}: input `{missing[0]}` is missing")
        names: list[str] = list(self._evaluator.output_names)
        try:
            # Overflow and division by zero have defined results in ONNX; numpy's warnings about
            # them would reach the user's terminal.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = self._evaluator.run(None, dict(inputs))
        except Exception as error:  # as above
            raise RunFailed(f"{self.runtime}: {_first_line(error)}") from error
        return {name: _array(name, value) for name, value in zip(names, values, strict=True)}


def _array(name: str, value: Any) -> Array:
    """Return an output as the interface promises it: an array, strings as objects."""
    if isinstance(value, (list, dict)) or value is None:
        raise RunFailed(f"output `{name}` is a {type(value).__name__}, expected a tensor")
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array


def _first_line(error: Exception) -> str:
    if isinstance(error, KvtoolError):
        return error.message
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
