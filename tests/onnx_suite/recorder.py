"""A plugin of pytest that writes down what onnx's tests ask of inference and of the checker.

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
import onnx.shape_inference

RECORDS: dict[tuple[str, bytes, bool], dict[str, Any]] = {}
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
                test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
                RECORDS.setdefault(
                    (kind, message, strict),
                    {"kind": kind, "test": test, "model": message, "strict": strict}
                    | {"refused": refused, "answer": found},
                )
        return answer

    return wrapper


def pytest_configure() -> None:
    onnx.shape_inference.infer_shapes = recording("infer", onnx.shape_inference.infer_shapes)
    onnx.checker.check_model = recording("check", onnx.checker.check_model)


def pytest_unconfigure() -> None:
    Path(os.environ["KVTOOL_RECORDING"]).write_bytes(pickle.dumps(list(RECORDS.values())))
