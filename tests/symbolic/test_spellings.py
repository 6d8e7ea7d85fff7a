"""A dimension is one size for every command, however its text spells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.lint.context import bound
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim, dims_of
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.symbols import Layout
from tests.grids import each

_SIZES = {"s": 8, "t": 3}
_SPELLINGS = {
    "s": 8,
    " s ": 8,
    "(s)": 8,
    "3": 3,
    "2*s": 16,
    "s + t": 11,
    "1 - t + s": 6,
    "s*t - 1": 23,
    "max(1, s)": 8,
    "Max(1, s - 4)": 4,
    "min(s, t)": 3,
    "s - Min(16, s) + 16": 16,
    "s//3": 2,
    "(s + 1) // t": 3,
    "FloorDiv(s, 3)": 2,
    "floor(s/3)": 2,
    "floor(s/2 + t/2)": 5,
    "ceiling(s/3)": 3,
    "4*s/2": 16,
    "s % 3": 2,
    "Mod(s, t)": 2,
    "s**2": 64,
}


def _model(text: str, size: int) -> onnx.ModelProto:
    """Return a model that runs only where the size of `x`, declared as `text`, is `size`."""
    x, y = "x", helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])
    dims = {"x": text, "a": "s", "b": "t"}
    graph = helper.make_graph(
        [helper.make_node("Reshape", [x, "shape"], ["y"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d]) for n, d in dims.items()],
        [y],
        [numpy_helper.from_array(np.array([size]), "shape")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _dims(model: ir.Model) -> tuple[int | str | None, ...] | None:
    return dims_of(model.graph.inputs[0])


def _check(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Any:
    read = ir.from_proto(model)
    with bound(read, sizes):
        return _dims(read)


def _layout(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Any:
    return Layout(plan(ir.from_proto(model)), sizes, 1).shapes["x"]


def _verify(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Any:
    report = kv.verify(model, model, dims=sizes, runtime="reference")
    assert report.status == "equal", report.detail
    return dims_of(ir.from_proto(model).graph.outputs[0])  # at any other size it fails


_COMMANDS: dict[str, Callable[[onnx.ModelProto, Mapping[str, int]], Any]] = {
    "infer": lambda m, sizes: _dims(kv.infer(m, dims=sizes)[0]),
    "lower": lambda m, sizes: _dims(kv.lower(m, opset=14, dims=sizes, verify=False)[0]),
    "inspect": lambda m, sizes: kv.inspect(m, dims=sizes).inputs[0].shape,
    "check": _check,
    "eval": lambda m, sizes: kv.evaluate(m, random=True, dims=sizes)["y"].shape,
    "verify": _verify,
    "inputs": _layout,
}


@pytest.mark.long
@each("command", list(_COMMANDS))
@each(("text", "size"), _SPELLINGS.items())
def test_a_spelling_is_one_size(command: str, text: str, size: int) -> None:
    assert _COMMANDS[command](_model(text, size), _SIZES) == (size,)


@pytest.mark.long
@each("command", list(_COMMANDS))
@each("text", ["batch-size", "past.len", "s / 2", "f(s)", "s ** t", "größe + 1"])
def test_what_is_no_expression_is_a_name_of_its_own(command: str, text: str) -> None:
    sizes = {**_SIZES, text: 5}
    assert _COMMANDS[command](_model(text, 5), sizes) == (5,)


@each("command", ["infer", "lower", "inspect", "eval", "verify"])
@each("text", ["s - 2 * t - 3", "s // (t - 3)"])
def test_sizes_with_which_an_input_has_none_are_refused(command: str, text: str) -> None:
    with pytest.raises(UsageError, match=r"dimension 0 of input `x`"):
        _COMMANDS[command](_model(text, 1), _SIZES)


@each(
    ("text", "other"),
    [
        ("1 + s", "s + 1"),
        ("floor((s + 2)/2)", "s // 2 + 1"),
        ("max(1, s)", "Max(s, 1)"),
        ("3", 3),
        ("16 - Min(s, 16) + s", "s - Min(16, s) + 16"),
    ],
)
def test_equal_spellings_are_one_dimension(text: Dim, other: Dim) -> None:
    equalities = SizeEqualities()
    assert equalities.of_dim(text) == equalities.of_dim(other)


def test_a_name_that_is_only_part_of_another_is_unknown() -> None:
    with pytest.raises(KvtoolError, match="no input has a dimension called `batch`"):
        kv.inspect(_model("batch-size", 5), dims={"batch": 5})
