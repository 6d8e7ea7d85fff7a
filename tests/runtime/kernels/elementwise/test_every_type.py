"""Every operator of one or two operands in every type of every version, against Python numbers."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx.defs
import onnx_ir as ir
import pytest

from onnx_kvtool.runtime.kernels.elementwise import binary, unary
from onnx_kvtool.runtime.kernels.kernel import Context, KernelFunction
from tests.grids import each

ONE: dict[str, Callable[[Any], Any]] = {
    "Neg": operator.neg,
    "Abs": abs,
    "Sign": lambda x: (x > 0) - (x < 0),
    "Floor": math.floor,
    "Ceil": math.ceil,
    "Round": round,
    "Reciprocal": lambda x: 1 / x,
    "Sqrt": math.sqrt,
    "Exp": math.exp,
    "Log": math.log,
    "Sin": math.sin,
    "Cos": math.cos,
    "Tan": math.tan,
    "Asin": math.asin,
    "Acos": math.acos,
    "Atan": math.atan,
    "Sinh": math.sinh,
    "Cosh": math.cosh,
    "Tanh": math.tanh,
    "Asinh": math.asinh,
    "Acosh": math.acosh,
    "Atanh": math.atanh,
    "Erf": math.erf,
    "Not": operator.not_,
    "BitwiseNot": operator.invert,
    "IsNaN": math.isnan,
    "IsInf": math.isinf,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": lambda a, b: math.trunc(a / b) if isinstance(a, int) else a / b,
    "Mod": lambda a, b: a % b if isinstance(a, int) else math.fmod(a, b),
    "Pow": operator.pow,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": operator.xor,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
    "BitShift": operator.lshift,
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Min": min,
    "Max": max,
    "Sum": operator.add,
    "Mean": lambda a, b: (a + b) / 2,
}
ATTRIBUTES: dict[str, dict[str, Any]] = {"BitShift": {"direction": "LEFT"}}


def dtype_of(type_name: str) -> np.dtype:
    name = type_name.removeprefix("tensor(").removesuffix(")")
    return np.dtype(ir.DataType[{"float": "FLOAT"}.get(name, name.upper())].numpy())


def numbers(dtype: np.dtype, op: str) -> np.ndarray:
    """Return numbers that the type and the operator have, all different where that is possible."""
    if dtype == np.bool_:
        return np.array([[True, False, True]])
    if dtype.kind == "O":
        return np.array([["b", "a", ""]], object)
    if dtype.kind == "u":
        return np.array([[5, 0, 3]], dtype)
    if dtype.kind == "i":
        return np.array([[5, 0, -3]], dtype)
    if op == "Acosh":
        return np.array([[1.5, 2.25, 6.0]]).astype(dtype)
    low = 0.0625 if op in ("Log", "Sqrt", "Pow") else -0.75
    return np.array([[0.5, 0.25, low]]).astype(dtype)


def others(dtype: np.dtype, op: str) -> np.ndarray:
    if dtype == np.bool_:
        return np.array([[True], [False]])
    if dtype.kind == "O":
        return np.array([["a"], ["b"]], object)
    if dtype.kind in "iu":
        return np.array([[2], [3]], dtype)
    return np.array([[0.5], [1.5]]).astype(dtype)


def lines() -> Iterator[Any]:
    schemas: dict[str, list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas.setdefault(schema.name, []).append(schema)
    for op, kernels in {**binary.LINES, **unary.LINES}.items():
        if op not in ONE and op not in TWO:
            continue
        for schema in sorted(schemas[op], key=lambda s: s.since_version):
            serving = [k for since, k in kernels.items() if since <= schema.since_version]
            if not serving:
                continue
            result = schema.outputs[0].type_str
            for name in sorted(schema.inputs[0].types):
                case = f"{op}-{schema.since_version} of {name}"
                same = result == schema.inputs[0].type_str
                yield pytest.param(op, serving[-1], name, same, id=case)


@pytest.mark.long
@each(("op", "kernel", "type_name", "same_type"), list(lines()))
def test_every_type(op: str, kernel: KernelFunction, type_name: str, same_type: bool) -> None:
    dtype = dtype_of(type_name)
    keywords = dict(ATTRIBUTES.get(op, {}))
    if op == "Mod" and dtype.kind not in "iu":
        keywords["fmod"] = 1
    if "context" in inspect.signature(kernel).parameters:
        keywords["context"] = Context(25, 1, _fail)
    x = numbers(dtype, op)
    if op in ONE:
        got = kernel(x, **keywords)
        expected = np.array([[ONE[op](v) for v in plain(x)[0]]])
    else:
        y = others(dtype, op)
        got = kernel(x, y, **keywords)
        expected = np.array([[TWO[op](a, b) for a in plain(x)[0]] for (b,) in plain(y)])
    assert got.dtype == (dtype if same_type else np.bool_)
    assert got.shape == expected.shape
    if dtype.kind in "iu" or got.dtype == np.bool_:
        wrapped = expected if got.dtype == np.bool_ else wrap(expected, dtype)
        assert got.tolist() == wrapped.tolist()
    else:
        eps = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=1.01 * eps, atol=0
        )


def plain(x: np.ndarray) -> list[list[Any]]:
    if x.dtype == object or x.dtype == np.bool_ or x.dtype.kind in "iu":
        return x.tolist()  # type: ignore[no-any-return]
    return x.astype(np.float64).tolist()  # type: ignore[no-any-return]


def wrap(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.array([[int(v) for v in row] for row in values.tolist()]).astype(dtype)


def _fail(message: str) -> None:
    raise AssertionError(message)
