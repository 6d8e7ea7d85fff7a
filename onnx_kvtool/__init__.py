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

from onnx_kvtool import core as _core

if TYPE_CHECKING:
    from onnx_kvtool.analysis.inspection import InspectReport
    from onnx_kvtool.commands.bench import bench
    from onnx_kvtool.commands.check import check
    from onnx_kvtool.commands.diff import diff
    from onnx_kvtool.commands.evaluate import evaluate
    from onnx_kvtool.commands.infer import infer
    from onnx_kvtool.commands.inspect import inspect
    from onnx_kvtool.commands.lower import lower
    from onnx_kvtool.commands.merge import merge
    from onnx_kvtool.commands.output import save
    from onnx_kvtool.commands.print_ import print as print
    from onnx_kvtool.commands.raise_ import raise_
    from onnx_kvtool.commands.reference_evaluator import ReferenceEvaluator
    from onnx_kvtool.commands.verify import verify
    from onnx_kvtool.core.errors import (
        KvtoolError,
        MalformedModel,
        Shortage,
        UnreadableModel,
        Unverified,
        UnwritableOutput,
        UsageError,
    )
    from onnx_kvtool.decoding.decoder import Decoder
    from onnx_kvtool.decoding.report import BenchReport
    from onnx_kvtool.evaluation.report import EvalReport
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.lint.report import CheckReport
    from onnx_kvtool.model_io.model import load
    from onnx_kvtool.review.report import DiffReport
    from onnx_kvtool.rewrite.raise_report import Raised, RaiseReport, Unraised
    from onnx_kvtool.rewrite.report import Lowered, LowerReport, Refused, Verification
    from onnx_kvtool.runtime.confined import Exceeded
    from onnx_kvtool.runtime.errors import (
        CannotDraw,
        ModelRejected,
        OutOfMemory,
        RunFailed,
        RuntimeUnavailable,
        TooLarge,
    )
    from onnx_kvtool.shapes.inference import InferReport
    from onnx_kvtool.verification.report import VerifyReport

__all__ = [
    "BenchReport",
    "CannotDraw",
    "CheckReport",
    "Decoder",
    "DiffReport",
    "EvalReport",
    "Exceeded",
    "Finding",
    "InferReport",
    "InspectReport",
    "KvtoolError",
    "LowerReport",
    "Lowered",
    "MalformedModel",
    "ModelRejected",
    "OutOfMemory",
    "RaiseReport",
    "Raised",
    "ReferenceEvaluator",
    "Refused",
    "RunFailed",
    "RuntimeUnavailable",
    "Shortage",
    "TooLarge",
    "Unraised",
    "UnreadableModel",
    "Unverified",
    "UnwritableOutput",
    "UsageError",
    "Verification",
    "VerifyReport",
    "__version__",
    "bench",
    "check",
    "diff",
    "evaluate",
    "infer",
    "inspect",
    "load",
    "lower",
    "merge",
    "raise_",
    "save",
    "verify",
]
"""Public names but for `print`, which `from onnx_kvtool import *` must not put over Python's."""

__version__ = "0.3.0"
__address__ = "https://github.com/OWNER/kvtool"
"""Of the repository. Rules, the metadata and the site lead there; it is set here alone."""

_HOMES = {
    "BenchReport": "decoding.report",
    "CannotDraw": "runtime.errors",
    "CheckReport": "lint.report",
    "Decoder": "decoding.decoder",
    "DiffReport": "review.report",
    "EvalReport": "evaluation.report",
    "Exceeded": "runtime.confined",
    "Finding": "lint.finding",
    "InferReport": "shapes.inference",
    "InspectReport": "analysis.inspection",
    "KvtoolError": "core.errors",
    "LowerReport": "rewrite.report",
    "Lowered": "rewrite.report",
    "MalformedModel": "core.errors",
    "ModelRejected": "runtime.errors",
    "OutOfMemory": "runtime.errors",
    "RaiseReport": "rewrite.raise_report",
    "Raised": "rewrite.raise_report",
    "ReferenceEvaluator": "commands.reference_evaluator",
    "Refused": "rewrite.report",
    "RunFailed": "runtime.errors",
    "RuntimeUnavailable": "runtime.errors",
    "Shortage": "core.errors",
    "TooLarge": "runtime.errors",
    "Unraised": "rewrite.raise_report",
    "UnreadableModel": "core.errors",
    "Unverified": "core.errors",
    "UnwritableOutput": "core.errors",
    "UsageError": "core.errors",
    "Verification": "rewrite.report",
    "VerifyReport": "verification.report",
    "bench": "commands.bench",
    "check": "commands.check",
    "diff": "commands.diff",
    "evaluate": "commands.evaluate",
    "infer": "commands.infer",
    "inspect": "commands.inspect",
    "load": "model_io.model",
    "lower": "commands.lower",
    "merge": "commands.merge",
    "print": "commands.print_",
    "raise_": "commands.raise_",
    "save": "commands.output",
    "verify": "commands.verify",
}
"""The module of each public name."""


_core.load_shown = lambda: import_module(f"{__name__}.report.shown")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "print"])
