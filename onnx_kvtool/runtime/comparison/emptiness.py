"""Whether windows move over nothing within a model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Array, RuntimeName, Session, open_session

__all__ = ["Emptiness"]


class Emptiness:
    """Says of one model whether a convolution, pool or Slice of its main graph gives no element.

    The model is run with what these operators give for its outputs: how often a window fits that
    is larger than what it moves over is for the runtime to say, and inference does not know all.

    Args:
        model: The serialised model.
        directory: Where locations of external data start.
        runtime: What runs it.
    """

    def __init__(self, model: bytes, directory: str, runtime: RuntimeName) -> None:
        self._model = model
        self._directory = directory
        self._runtime = runtime
        self._session: Session | None = None
        self._is_open = False

    def __call__(self, inputs: Mapping[str, Array]) -> bool:
        """Return whether floats are missing on `inputs`, of which none is empty.

        A model that no runtime loads with such outputs is taken at its word.
        """
        if any(value.size == 0 for value in inputs.values()):
            return False
        if not self._is_open:
            self._is_open = True
            self._open()
        if self._session is None:
            return False
        with suppress(RunFailed):
            values = self._session.run(inputs).values()
            return any(v.size == 0 and np.dtype(v.dtype).kind not in "biuO" for v in values)
        return False

    def _open(self) -> None:
        message = onnx.ModelProto.FromString(self._model)
        names = [
            name
            for node in message.graph.node
            if Trait.WINDOWED in traits(node) or _is_slice(node)
            for name in node.output[:1]
        ]
        if names:
            del message.graph.output[:]
            message.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
            with suppress(RuntimeUnavailable):
                data = message.SerializeToString()
                self._session = open_session(self._runtime, data, self._directory)


def _is_slice(node: onnx.NodeProto) -> bool:
    return node.op_type == "Slice" and node.domain in DEFAULT_DOMAINS
