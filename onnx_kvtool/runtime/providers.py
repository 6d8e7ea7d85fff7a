"""Which execution provider of onnxruntime runs models: the CPU's own, or another that it has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import enumerated, unknown_name

__all__ = ["CPU", "accelerator", "check_provider", "provider", "running_on"]

CPU = "CPUExecutionProvider"

_CHOSEN: ContextVar[str | None] = ContextVar("provider", default=None)
"""As it was given; None where nobody chose one. A process that is forked has the same."""


def check_provider(text: str | None) -> None:
    """Refuse a provider that the installed onnxruntime does not have, or options that are none.

    Args:
        text: `NAME[,key=value...]`; `ExecutionProvider` at the end of the name may be left out.

    Raises:
        UsageError: If it is no such text, or there is no such provider.
    """
    if text is not None:
        _parsed(text)


@contextlib.contextmanager
def running_on(text: str | None) -> Iterator[None]:
    """Have onnxruntime run models on a provider in the block; None for the CPU."""
    token = _CHOSEN.set(text)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def provider() -> tuple[str, dict[str, str]] | None:
    """Return the provider that was chosen, with its options; None where nobody chose one."""
    text = _CHOSEN.get()
    return None if text is None else _parsed(text)


def accelerator() -> str | None:
    """Return the name of the provider that was chosen, if it is not the CPU's own.

    It may round float32 as float16 does, and may not write a cache where it is read.
    """
    text = _CHOSEN.get()
    name = None if text is None else _parsed(text)[0]
    return None if name == CPU else name


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    name, *pairs = text.split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(
                f"`--provider {text}` has the option `{pair}`, expected `key=value`",
                help="write `--provider NAME,key=value`",
            )
        options[key] = value
    there: list[Any] = _runtime().get_available_providers()
    known = {n.lower(): n for n in there} | {_short(n).lower(): n for n in there}
    if name.lower() not in known:
        error = unknown_name(f"onnxruntime has no execution provider `{name}`", name, there)
        error.help = f"the installed one has {enumerated(there)}"
        raise error
    return known[name.lower()], options


def _short(name: str) -> str:
    return name.removesuffix("ExecutionProvider")


def _runtime() -> Any:
    import onnxruntime

    return onnxruntime
