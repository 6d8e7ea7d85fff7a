"""Identity, all versions."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["identity"]


def identity(input: Value) -> tuple[Value]:
    """Return `input` itself: an array, a sequence, or an optional that may hold nothing."""
    return (input,)
