"""kvtool: rewrite ONNX decoders with a key/value cache for the runtime that has to load them.

The public functions have the names of the commands, and their keywords are the flags:

    import onnx_kvtool as kv

    lowered, report = kv.lower("decoder.onnx", opset=18)

Importing this package is cheap: each name below is loaded from its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_kvtool.commands.lower import lower
    from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
    from onnx_kvtool.rewrite.report import Lowered, LowerReport, Refused, Verification

__all__ = [
    "KvtoolError",
    "LowerReport",
    "Lowered",
    "Refused",
    "UnreadableModel",
    "UsageError",
    "Verification",
    "__version__",
    "lower",
]

__version__ = "0.1.0"

_HOMES = {
    "KvtoolError": "onnx_kvtool.core.errors",
    "LowerReport": "onnx_kvtool.rewrite.report",
    "Lowered": "onnx_kvtool.rewrite.report",
    "Refused": "onnx_kvtool.rewrite.report",
    "UnreadableModel": "onnx_kvtool.core.errors",
    "UsageError": "onnx_kvtool.core.errors",
    "Verification": "onnx_kvtool.rewrite.report",
    "lower": "onnx_kvtool.commands.lower",
}


def __getattr__(name: str) -> Any:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
