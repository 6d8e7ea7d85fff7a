"""The ways that running a model can fail."""

from __future__ import annotations

from onnx_kvtool.core.errors import KvtoolError, Shortage


class RuntimeUnavailable(KvtoolError):
    """A runtime cannot load a model, or is known to compute it wrongly.

    The model may be right: the runtime may lack a kernel, or support only older opsets.

    Attributes:
        is_placed: Whether the message names the node.
    """

    is_placed = False


class ModelRejected(RuntimeUnavailable):
    """A runtime read a model and found that it breaks the specification of ONNX."""


class RunFailed(KvtoolError):
    """A loaded model failed while it ran, for example because of an index out of range."""


class OutOfMemory(Shortage):
    """A run, or loading a model, got no memory; the model may be right."""


class KernelError(KvtoolError):
    """The text of an operator does not allow these inputs or attributes."""


class CannotDraw(KvtoolError):
    """No inputs can be drawn for a model, for example for a graph input of unknown rank."""


class NoTwin(KvtoolError):
    """A model has no twin in a wider type: its results depend on the bits of the narrow type."""


class TooLarge(CannotDraw):
    """The inputs and values of a run need more memory than is available.

    Attributes:
        needed: Bytes that a run needs, approximately.
    """

    def __init__(self, message: str, *, help: str | None = None, needed: int) -> None:
        super().__init__(message, help=help)
        self.needed = needed
