"""A plugin of pytest that writes down what onnx's tests ask of onnx, and what they get.

Of inference and of the checker it is each model with what is said of it; of the version converter
each model with the target and the result; of compose and of the inliner what they make.

It runs in a process of its own: `pytest -p recorder` with this directory on the path and the name
of a file in `KVTOOL_RECORDING`, to which it writes pickled records.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
import onnx.compose
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter

RECORDS: dict[tuple[str, bytes, int], dict[str, Any]] = {}
_REFUSALS = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def recording(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does what `call` does, and writes down the model and the answer."""

    @functools.wraps(call)
    def wrapper(model: Any, *args: Any, **options: Any) -> Any:
        message = None
        if isinstance(model, onnx.ModelProto):
            message = model.SerializeToString(deterministic=True)
        refused, answer = None, None
        try:
            answer = call(model, *args, **options)
        except _REFUSALS as error:
            refused = str(error)
            raise
        finally:
            strict = bool(options.get("strict_mode") or options.get("full_check") or any(args))
            if message is not None and (answer is not None or refused or kind == "check"):
                found = answer.SerializeToString() if kind == "infer" and answer else None
                RECORDS.setdefault(
                    (kind, message, strict),
                    {"kind": kind, "test": _test(), "model": message, "strict": strict}
                    | {"refused": refused, "answer": found},
                )
        return answer

    return wrapper


def converting(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a version converter that writes down what it is given, and what becomes of it."""

    @functools.wraps(call)
    def wrapper(model: Any, target_version: int) -> Any:
        answer = None
        before = model.SerializeToString(deterministic=True)
        try:
            answer = call(model, target_version)
        finally:
            RECORDS.setdefault(
                ("convert", before, target_version),
                {"kind": "convert", "test": _test(), "model": before, "target": target_version}
                | {"answer": None if answer is None else answer.SerializeToString()},
            )
        return answer

    return wrapper


def making(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes a model, and writes it down."""

    @functools.wraps(call)
    def wrapper(*args: Any, **options: Any) -> Any:
        made = call(*args, **options)
        if isinstance(made, onnx.ModelProto):
            message = made.SerializeToString(deterministic=True)
            record = {"kind": "made", "test": _test(), "model": message}
            RECORDS.setdefault(("made", message, 0), record)
        return made

    return wrapper


def _test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]


def pytest_configure() -> None:
    onnx.version_converter.convert_version = converting(onnx.version_converter.convert_version)
    for name in ("add_prefix", "expand_out_dim", "merge_models"):
        setattr(onnx.compose, name, making(getattr(onnx.compose, name)))
    for name in ("inline_local_functions", "inline_selected_functions"):
        setattr(onnx.inliner, name, making(getattr(onnx.inliner, name)))
    onnx.shape_inference.infer_shapes = recording("infer", onnx.shape_inference.infer_shapes)
    onnx.checker.check_model = recording("check", onnx.checker.check_model)


def pytest_unconfigure() -> None:
    Path(os.environ["KVTOOL_RECORDING"]).write_bytes(pickle.dumps(list(RECORDS.values())))
