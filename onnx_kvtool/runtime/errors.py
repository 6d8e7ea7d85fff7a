"""The ways that running a model can fail."""

from __future__ import annotations

from onnx_kvtool.core.errors import KvtoolError, Shortage


class RuntimeUnavailable(KvtoolError):
    """A runtime cannot load a model, or is known to compute it wrongly.

    Says nothing against the model: the runtime may lack a kernel, or know only older opsets.

    Attributes:
        is_placed: Whether the message names the node.
    """

    is_placed = False


class ModelRejected(RuntimeUnavailable):
    """A runtime read a model and found that it breaks the specification of ONNX."""


class RunFailed(KvtoolError):
    """A model that was loaded failed while it ran, as for an index that is out of range."""


class OutOfMemory(Shortage):
    """A run, or loading a model, got no memory: says nothing against the model."""


class KernelError(KvtoolError):
    """Inputs or attributes that the text of an operator does not allow."""


class CannotDraw(KvtoolError):
    """No inputs can be drawn for a model, as for a graph input of unknown rank."""


class NoTwin(KvtoolError):
    """A model has no twin in a wider type, as its results depend on the bits of the narrow one."""


class TooLarge(CannotDraw):
    """The inputs of a run, and what is made of them, take more memory than there is for them.

    Attributes:
        needed: Bytes that a run would take, about.
    """

    def __init__(self, message: str, *, help: str | None = None, needed: int) -> None:
        super().__init__(message, help=help)
        self.needed = needed
