"""What every report is to Python: the text that its command prints, and a page in a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from onnx_kvtool.core.record import Record

__all__ = ["Shown"]


class Shown(Record):
    """A report that can be printed, and looked at in a notebook.

    How a report is shown is known two rooms above the ones that make reports, and is loaded from
    there when somebody looks, so that a report costs no more than its facts.

    Examples:
        >>> print(kv.verify("decoder.onnx", "decoder.onnx", cases=1))  # doctest: +ELLIPSIS
        equal: decoder.onnx and decoder.onnx in onnxruntime ...
    """

    __slots__ = ()

    def __str__(self) -> str:
        return str(_shown().text(self))

    def _repr_html_(self) -> str:
        return str(_shown().html(self))


def _shown() -> Any:
    return import_module("onnx_kvtool.report.shown")
