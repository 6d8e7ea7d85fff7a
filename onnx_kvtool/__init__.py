"""kvtool: rewrite ONNX decoders with a key/value cache for the runtime that has to load them.

The public functions have the names of the commands, and their keywords are the flags:

    import onnx_kvtool as kv

    model = kv.load("decoder.onnx")  # an onnx_ir.Model; every function takes one, or a path
    lowered, report = kv.lower(model, opset=18)

Importing this package is cheap: each name below is loaded from its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_kvtool.commands.lower import lower
    from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
    from onnx_kvtool.core.model import read as load
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
    "load",
    "lower",
]

__version__ = "0.1.0"

_HOMES = {
    "KvtoolError": "core.errors:KvtoolError",
    "LowerReport": "rewrite.report:LowerReport",
    "Lowered": "rewrite.report:Lowered",
    "Refused": "rewrite.report:Refused",
    "UnreadableModel": "core.errors:UnreadableModel",
    "UsageError": "core.errors:UsageError",
    "Verification": "rewrite.report:Verification",
    "load": "core.model:read",
    "lower": "commands.lower:lower",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name].split(":")
    value = getattr(import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
