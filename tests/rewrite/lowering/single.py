"""One node as a model, lowered and run: what the tests of the rules have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime import onnxruntime, reference

__all__ = ["check", "one_node", "refusal", "results"]


UNABLE: Sequence[tuple[str, frozenset[str], str]] = [
    (
        r"find an implementation for Conv\(11\)",
        frozenset({"float64"}),
        "Conv has kernels for float32 and float16",
    ),
    (
        r"find an implementation for (Quantize|Dequantize)Linear\((19|21)\)",
        frozenset({"bfloat16"}),
        "neither has a kernel for bfloat16",
    ),
    (
        r"find an implementation for (Reshape|Transpose|Expand|Tile)\(",
        frozenset({"int2", "uint2", "int4", "uint4", "float4_e2m1fn"}),
        "hardly any operator has kernels for types below 8 bits",
    ),
    (
        "block_size must be 0 for per-tensor quantization",
        frozenset({"float32", "float16", "bfloat16"}),
        "one scale is taken for that of the whole tensor, also where it is that of its one block",
    ),
]
"""Where onnxruntime does not run a correct result: what it says, the element types of the source of
which one has to be there, and why. These alone are run in the reference runtime instead."""


def one_node(
    op: str,
    inputs: Mapping[str, np.ndarray | None],
    outputs: Sequence[np.dtype[Any] | type],
    *,
    opset: int,
    constants: Sequence[str] = (),
    dims: Mapping[str, Sequence[int | str | None] | None] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node.

    Args:
        op: The operator.
        inputs: Values of its inputs in order, by name; None for an absent one.
        outputs: Element types of its outputs; their shapes are not declared.
        opset: Opset of the model.
        constants: Inputs that are initializers instead of graph inputs.
        dims: Declared dimensions of inputs that are not those of their values; None for no shape.
        attributes: Attributes of the node.
    """
    given = {name: value for name, value in inputs.items() if value is not None}
    names = [name if value is not None else "" for name, value in inputs.items()]
    declared: dict[str, Any] = {name: list(value.shape) for name, value in given.items()}
    declared.update(dims or {})
    node = helper.make_node(
        op, names, [f"out{i}" for i in range(len(outputs))], name="node", **attributes
    )
    graph = helper.make_graph(
        [node],
        "case",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), declared[name]
            )
            for name, value in given.items()
            if name not in constants
        ],
        [
            helper.make_tensor_value_info(
                f"out{i}", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None
            )
            for i, dtype in enumerate(outputs)
        ],
        initializer=[numpy_helper.from_array(given[name], name) for name in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def results(
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray | None],
    target: int,
    *,
    by_reference: bool = False,
) -> list[np.ndarray]:
    """Lower a model, check the result, and run it in onnxruntime, or in the reference runtime."""
    lowered, _ = lower(model, opset=target, verify=False)
    data = serialize(lowered)
    proto = onnx.ModelProto.FromString(data)
    if not _accepted(proto) and _accepted(model):
        onnx.checker.check_model(proto, full_check=True)
    wanted = {value.name for value in proto.graph.input}
    feeds = {n: v for n, v in inputs.items() if n in wanted and v is not None}
    if by_reference:
        found = reference.Session(data, "").run(feeds)
    else:
        try:
            found = onnxruntime.Session(data, "").run(feeds)
        except KvtoolError as error:
            if not _is_unable(str(error), model):
                raise
            found = reference.Session(data, "").run(feeds)
    return [found[value.name] for value in proto.graph.output]


def _is_unable(message: str, model: onnx.ModelProto) -> bool:
    """Return whether a line of `UNABLE` says why onnxruntime does not run what was lowered."""
    given = [value.type.tensor_type.elem_type for value in model.graph.input]
    given += [value.type.tensor_type.elem_type for value in model.graph.output]
    given += [tensor.data_type for tensor in model.graph.initializer]
    types = {helper.tensor_dtype_to_np_dtype(code).name for code in given}
    return any(re.search(words, message) and types & named for words, named, _ in UNABLE)


def check(
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray | None],
    target: int,
    expected: Sequence[np.ndarray] | None = None,
    *,
    rtol: float = 0.0,
    by_reference: bool = False,
) -> None:
    """Hold the lowered model against `expected`, or against onnx's reference on the source.

    Args:
        model: The source.
        inputs: Values of its inputs; those that are initializers are ignored.
        target: Opset to lower to.
        expected: The outputs; None to compute them.
        rtol: Relative and absolute tolerance; 0 compares bit for bit, but for NaN payloads.
        by_reference: Whether the result is not to be run in onnxruntime.
    """
    if expected is None:
        wanted = {value.name for value in model.graph.input}
        feeds = {n: v for n, v in inputs.items() if n in wanted and v is not None}
        with np.errstate(all="ignore"):
            expected = ReferenceEvaluator(model).run(None, feeds)
    source = onnx.ModelProto()
    source.CopyFrom(model)
    for value, one in zip(source.graph.output, expected, strict=True):
        for axis in range(one.ndim):
            value.type.tensor_type.shape.dim.add().dim_param = f"{value.name}_{axis}"
        value.type.tensor_type.shape.SetInParent()
    ran = results(source, inputs, target, by_reference=by_reference)
    for got, one in zip(ran, expected, strict=True):
        assert got.dtype == one.dtype
        assert got.shape == one.shape
        if rtol:
            np.testing.assert_allclose(got, one, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(got, one)


def refusal(model: onnx.ModelProto, target: int) -> Diagnostic:
    """Return why the one node of a model cannot be lowered."""
    with pytest.raises(Refused) as refused:
        lower(model, opset=target, verify=False)
    (found,) = refused.value.report.refused
    return found


def _accepted(model: onnx.ModelProto) -> bool:
    """Return whether onnx's checker accepts a model: it does not without a shape at the border."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.checker.ValidationError:
        return False
    return True
