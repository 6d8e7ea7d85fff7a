"""Refusals of inputs and attributes of onnxruntime's operators that our kernels do not support."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError

ELSEWHERE = "run the model with `--runtime onnxruntime`"
"""The help of a refusal."""


def refuse_input(name: str, value: object) -> None:
    """Refuse an input that is not implemented.

    Raises:
        KernelError: If it is given.
    """
    if value is not None:
        raise KernelError(f"`{name}` is given, which is not implemented", help=ELSEWHERE)


def refuse_value(name: str, value: object, *implemented: object) -> None:
    """Refuse a value of an attribute that is not implemented.

    Args:
        name: The attribute.
        value: Its value; None where it has no default and was not given.
        implemented: The values that are.

    Raises:
        KernelError: If it is none of them.
    """
    if value not in implemented:
        known = " or ".join(f"`{one}`" for one in implemented if one is not None)
        raise KernelError(
            f"`{name}` is `{value}`, expected {known}: nothing else is implemented", help=ELSEWHERE
        )
