"""Every public function refuses keywords of a wrong type, and says what it expects."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import onnx_kvtool as kv
from tests.core.small import plain
from tests.grids import each

CASES: dict[str, tuple[Any, dict[str, Any], str, str | None]] = {
    "dims as a list": (
        kv.lower,
        {"dims": [("batch", 2)]},
        "`dims` is a list, expected a mapping from names to integers",
        'write `dims={"batch": 2}`',
    ),
    "an opset as a text": (
        kv.lower,
        {"opset": "18"},
        "`opset` is the text `18`, expected an integer",
        "write `opset=18`",
    ),
    "an opset as a float": (
        kv.lower,
        {"opset": 18.0},
        "`opset` is `18.0`, expected an integer",
        None,
    ),
    "an opset as a bool": (
        kv.raise_,
        {"opset": True},
        "`opset` is `True`, expected an integer",
        None,
    ),
    "a switch as a number": (
        kv.lower,
        {"static": 1},
        "`static` is `1`, expected True or False",
        None,
    ),
    "a seed as a text": (
        kv.evaluate,
        {"seed": "x"},
        "`seed` is the text `x`, expected an integer",
        None,
    ),
    "a tolerance as a text": (
        lambda model, **given: kv.verify(model, model, **given),
        {"rtol": "1e-3"},
        "`rtol` is the text `1e-3`, expected a number",
        None,
    ),
    "names as numbers": (
        kv.evaluate,
        {"fetch": [1, 2]},
        "`fetch` is a list, expected a list of texts",
        None,
    ),
    "limits as a list": (
        kv.evaluate,
        {"memory_limit": [1]},
        "`memory_limit` is a list, expected an integer or a text",
        None,
    ),
}


@each("name", [*CASES])
def test_a_wrong_type_is_wrong_usage(name: str) -> None:
    function, given, message, help = CASES[name]
    with pytest.raises(kv.UsageError) as raised:
        function(plain(), **given)
    assert (raised.value.message, raised.value.help) == (message, help)


def test_numbers_of_numpy_are_numbers() -> None:
    lowered, _ = kv.lower(plain(), opset=np.int64(15), verify=False)
    assert lowered.opset_imports[""] == 15


@each(
    "function",
    [kv.bench, kv.check, kv.evaluate, kv.infer, kv.inspect, kv.lower, kv.raise_, kv.verify],
)
def test_no_keyword_of_any_function_takes_any_object(function: Any) -> None:
    odd = object()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        model = [plain(), plain()] if function is kv.verify else [plain()]
        with pytest.raises(kv.KvtoolError):
            function(*model, **{name: odd})
