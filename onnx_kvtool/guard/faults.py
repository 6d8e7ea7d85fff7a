"""The faults of other libraries that kvtool works around."""

from __future__ import annotations

from types import ModuleType

from onnx_kvtool.core.tables import Table
from onnx_kvtool.guard import (
    crashes,
    early_sympy,
    exhaustion,
    onnxruntime_faults,
    scopes,
    wrong_sizes,
)
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.model_io import message

_WRITER = Fault(
    library="onnx-ir",
    seen="1.1.0",
    what="drops sparse initializers and the empty outputs at the end of a node when it writes a"
    " model, doubles metadata of tensors and quantization annotations of outputs, and refuses maps"
    " and sparse attributes",
    instead="keeps what onnx-ir cannot hold beside the model, and writes models itself",
)
"""Its guard is how `onnx_kvtool.model_io` reads and writes."""

_SYMPY = Fault(
    library="onnx-ir",
    seen="1.1.0",
    what="imports sympy, which takes longer than the rest of it, and 34 MB, and uses it for"
    " arithmetic on sizes alone",
    instead="has its command line import sympy on first use, which never comes",
)
"""Stands here because its file is imported by what must import nothing."""


def _path(module: ModuleType) -> str:
    return module.__name__.replace(".", "/") + ".py"


FAULTS: Table[str, tuple[str, Fault]] = Table(
    "fault",
    [
        *(
            (name.lower(), (_path(module), fault))
            for module in (crashes, exhaustion, onnxruntime_faults, wrong_sizes, scopes)
            for name, fault in vars(module).items()
            if isinstance(fault, Fault)
        ),
        ("message", (_path(message), _WRITER)),
        ("early_sympy", (_path(early_sympy), _SYMPY)),
    ],
)
"""The faults by name, each with the file that works around it: what ends the process or takes all
of its memory or time, then what gives wrong answers."""
