"""The backend node cases of the onnx wheel: one operator each, with inputs and expected outputs."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import base

from tests.grids import runs_a_part

__all__ = ["Case", "cases", "collected", "few"]

_HEAVY = {f"export_{pool}_3d_default" for pool in ("averagepool", "lppool", "maxpool")}
"""What takes five of the six seconds in which all cases are made: a loop over 90,000 windows."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        name: As onnx calls it, without `test_`.
        model: The model; its operator is that of the first node.
        opset: The version of the default domain that the model imports.
        feeds: Values of the inputs: arrays, lists of arrays for sequences, None for an optional
            that holds nothing.
        expected: Values of the outputs, in order.
        rtol: Relative tolerance that onnx grants the case.
    """

    name: str
    model: onnx.ModelProto
    opset: int
    feeds: dict[str, Any]
    expected: list[Any]
    rtol: float


@functools.cache
def collected() -> list[Any]:
    """Return all cases as onnx makes them; without the heaviest three where a part is run.

    A class of cases makes them when it is defined. What each is documented with, which takes as
    long again, is not looked for.
    """
    define = base._Exporter.__init__

    def light(cls: Any, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        left_out = _HEAVY if runs_a_part() else set()
        define(cls, name, bases, {k: v for k, v in members.items() if k not in left_out})

    with (
        mock.patch.object(base._Exporter, "__init__", light),
        mock.patch.object(base, "process_snippet", return_value=("", "")),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the generators overflow and divide by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


@functools.cache
def cases() -> tuple[Case, ...]:
    """Return every case that imports the default domain, but for the expanded variants.

    An expanded variant is the same case with the operator replaced by its function body.
    """
    found = []
    for case in collected():
        if case.model is None or "_expanded" in case.name or not case.data_sets:
            continue
        versions = {entry.domain: entry.version for entry in case.model.opset_import}
        if "" not in versions:
            continue
        inputs, outputs = case.data_sets[0]
        names = [value.name for value in case.model.graph.input]
        feeds = {n: _plain(v) for n, v in zip(names, inputs, strict=True)}
        expected = [_plain(v) for v in outputs]
        found.append(
            Case(
                case.name.removeprefix("test_"),
                case.model,
                versions[""],
                feeds,
                expected,
                case.rtol,
            )
        )
    return tuple(found)


@functools.cache
def few(*, both: bool = True) -> tuple[Case, ...]:
    """Return the first and the last case of each operator, or the last one alone."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    places = (0, -1) if both else (-1,)
    chosen = {id(group[place]) for group in found.values() for place in places}
    return tuple(case for case in cases() if id(case) in chosen)


def _plain(value: Any) -> Any:
    """Return a value as numpy holds it."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if value is None or isinstance(value, list):
        return value if value is None else [_plain(item) for item in value]
    return np.asarray(value)
