"""One node of onnxruntime, written with operators of ONNX and run beside onnxruntime's kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.rewrite.report import Outcome
from onnx_kvtool.runtime import onnxruntime, reference
from onnx_kvtool.runtime.errors import RuntimeUnavailable
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.dimensions import dims_of
from tests.dialect import departures
from tests.runtime.kernels.contrib.node import node_model, ours

__all__ = [
    "FLOATS",
    "OPSETS",
    "Array",
    "Arrays",
    "Dims",
    "demand_same",
    "model_of",
    "normal",
    "opset_for",
    "refusal",
    "standard",
]

Array = np.ndarray[Any, Any]
Dims = list[int | str | None]
Arrays = Mapping[str, "Array | None"]

OPSETS = st.sampled_from([24, 21, 18, 13, 11])
FLOATS = st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16])

_BF16 = ml_dtypes.bfloat16

TOLERANCE = {"float32": 2e-5, "float64": 1e-5, "float16": 8e-3, "bfloat16": 6e-2}
"""Of 16-bit types, onnxruntime rounds once where ONNX rounds after each operator."""


def opset_for(opset: int, dtype: Any) -> int:
    """Return an opset at which a type exists."""
    return max(opset, 13) if dtype == ml_dtypes.bfloat16 else opset


def normal(*shape: int, dtype: Any = np.float32, seed: int = 3) -> Array:
    """Return seeded numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def standard(
    op_type: str,
    inputs: Arrays,
    outputs: Sequence[str] = ("y",),
    domain: str = "com.microsoft",
    *,
    at: int = 24,
    constants: Sequence[str] = (),
    dims: Mapping[str, Dims] | None = None,
    **attributes: Any,
) -> tuple[ir.Model, Outcome]:
    """Return a model of one node after it came to an opset with standard operators only."""
    proto = model_of(op_type, inputs, outputs, domain, constants, attributes)
    for value in proto.graph.input:
        if dims and value.name in dims:
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, dims[value.name]))
    if domain != "" or op_type != "LayerNormalization":
        proto.opset_import[0].version = max(at, proto.opset_import[0].version)
    model = ir.from_proto(proto)
    outcome = legalise(model, at, Options(), contrib="standard")
    return model, outcome


def demand_same(
    op_type: str,
    inputs: Arrays,
    outputs: Sequence[str] = ("y",),
    domain: str = "com.microsoft",
    *,
    at: int = 24,
    constants: Sequence[str] = (),
    steps: int = 0,
    tolerance: float | None = None,
    dims: Mapping[str, Dims] | None = None,
    expected: Mapping[str, Array] | None = None,
    **attributes: Any,
) -> ir.Model:
    """Hold the standard form of a node, and our kernel of it, against onnxruntime's kernel.

    That of float32 stands in where onnxruntime has none of bfloat16.

    Args:
        op_type: The operator.
        inputs: Values of its inputs in order, by name; None for an absent one.
        outputs: Names of its outputs; "" for an absent one.
        domain: Its domain.
        at: The opset of the result.
        constants: Inputs that are initializers.
        steps: By how many codes integers may differ.
        tolerance: Absolute and relative; None for that of the element type.
        dims: Declared dimensions of inputs that are not those of their values.
        expected: What must come out, where no kernel says it.
        attributes: Of the node.
    """
    arguments = (op_type, inputs, outputs, domain)
    feeds = {n: v for n, v in inputs.items() if v is not None and n not in constants}
    if expected is None:
        try:
            expected = _theirs(model_of(*arguments, constants, attributes), feeds)
        except RuntimeUnavailable:  # as the session says that it has no kernel of this type
            wide = {name: _widened(value) for name, value in inputs.items()}
            source = model_of(op_type, wide, outputs, domain, constants, attributes)
            expected = _theirs(source, {name: wide[name] for name in feeds})
            expected = {name: _narrowed(value) for name, value in expected.items()}
    model, outcome = standard(*arguments, at=at, constants=constants, dims=dims, **attributes)
    assert not outcome.refused, outcome.refused[0]
    assert not [n for n in model.graph.all_nodes() if n.domain != ""]
    assert "com.microsoft" not in model.opset_imports
    assert departures(model, ir.from_proto(model_of(*arguments, constants, attributes))) == []
    data = serialize(model)
    try:
        found = onnxruntime.Session(data, "").run(feeds)
    except KvtoolError:  # onnxruntime lacks kernels of some element types
        found = reference.Session(data, "").run(feeds)
    known = ours(*arguments, **attributes)
    demand_inferred(model_of(*arguments, constants, attributes), expected)
    for name, value in expected.items():
        bound = TOLERANCE.get(value.dtype.name, 0) if tolerance is None else tolerance
        for got in (found[name], known[name]):
            _compare(name, got, value, steps, bound)
    return model


def _widened(value: Array | None) -> Array | None:
    return value.astype(np.float32) if value is not None and value.dtype == _BF16 else value


def _narrowed(value: Array) -> Array:
    return value.astype(_BF16) if value.dtype == np.float32 else value


def demand_inferred(proto: onnx.ModelProto, expected: Mapping[str, Array]) -> None:
    """Demand that what inference knows of the outputs of a model is what they are."""
    model = ir.from_proto(proto)
    annotations = annotate(model, fully=True)
    for output in model.graph.outputs:
        value = expected.get(output.name or "")
        if value is None:
            continue
        assert output.dtype in (None, ir.DataType.from_numpy(value.dtype)), output.name
        if (dims := dims_of(output)) is not None:
            assert len(dims) == value.ndim, output.name
            pairs = zip(dims, value.shape, strict=True)
            assert all(dim == size for dim, size in pairs if isinstance(dim, int)), output.name
    annotations.remove()


def _compare(name: str, got: Array, value: Array, steps: int, bound: float) -> None:
    """Demand the type, the shape, and elements within a bound, or codes within steps."""
    assert (got.dtype, got.shape) == (value.dtype, value.shape), name
    if value.dtype.kind in "iub" and value.dtype != ml_dtypes.bfloat16:
        difference = np.abs(got.astype(np.int64) - value.astype(np.int64))
        assert difference.max(initial=0) <= steps, name
        return
    np.testing.assert_allclose(
        got.astype(np.float64), value.astype(np.float64), bound, bound, err_msg=name
    )


def model_of(
    op_type: str,
    inputs: Arrays,
    outputs: Sequence[str],
    domain: str,
    constants: Sequence[str],
    attributes: Mapping[str, Any],
) -> onnx.ModelProto:
    """Return a model of one node at opset 16, some inputs being initializers."""
    proto = node_model(op_type, inputs, outputs, domain, attributes)
    for name in constants:
        value = inputs[name]
        assert value is not None
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
        proto.graph.input.remove(next(i for i in proto.graph.input if i.name == name))
    return proto


def _theirs(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return what onnxruntime computes on a CPU, the node as it is."""
    if any(value.dtype == _BF16 for value in feeds.values()):
        # Which numpy has not.
        return dict(onnxruntime.Session(proto.SerializeToString(), "", optimize=False).run(feeds))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # others wait busily
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in proto.graph.output]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def refusal(op_type: str, inputs: Arrays, *arguments: Any, **options: Any) -> str:
    """Return why a node cannot be written with operators of ONNX."""
    _, outcome = standard(op_type, inputs, *arguments, **options)
    (found,) = outcome.refused
    return f"{found.code}: {found.message}"
