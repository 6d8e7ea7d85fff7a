"""Is a node legal at another opset, and what must change: derived from the schemas."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper

from onnx_kvtool.ops.legality import examine, fit

_ALL = onnx.defs.get_all_schemas_with_history()


def _node(op: str, inputs: list[int | None], outputs: int = 1, **attributes: Any) -> ir.Node:
    """Return a node whose inputs have these element types; None is an absent input."""
    names = [f"in{i}" if dtype is not None else "" for i, dtype in enumerate(inputs)]
    node: ir.Node = ir.from_proto(
        helper.make_node(op, names, [f"out{i}" for i in range(outputs)], **attributes)
    )
    for value, dtype in zip(node.inputs, inputs, strict=True):
        if value is not None and dtype is not None:
            value.type = ir.TensorType(ir.DataType(dtype))
    first = T.INT64 if op == "Shape" else next((d for d in inputs if d is not None), T.FLOAT)
    for value in node.outputs:
        value.type = ir.TensorType(ir.DataType(first))
    return node


_F, _I = T.FLOAT, T.INT64
_FITS = [
    # op, inputs, attributes, source, target: the edits that make it legal
    ("Relu", [_F], {}, 24, 11, {}),
    ("Reshape", [_F, _I], {"allowzero": 0}, 24, 13, {"drop": ["allowzero"]}),
    ("Shape", [_F], {"start": 0}, 24, 13, {"drop": ["start"]}),
    ("Cast", [_F], {"to": _I, "saturate": 1}, 24, 13, {"drop": ["saturate"]}),
    ("ScatterND", [_F, _I, _F], {"reduction": "none"}, 24, 13, {"drop": ["reduction"]}),
    ("Unsqueeze", [_F, _I], {}, 24, 11, {"as_attribute": [(1, "axes")]}),
    ("ReduceMean", [_F, _I], {"keepdims": 1}, 24, 17, {"as_attribute": [(1, "axes")]}),
    ("Split", [_F, _I], {}, 18, 11, {"as_attribute": [(1, "split")]}),
    ("AveragePool", [_F], {"kernel_shape": [2], "dilations": [1]}, 19, 11, {"drop": ["dilations"]}),
    ("Clip", [_F, None, _F], {}, 24, 11, {}),
]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "source", "target", "edits"),
    _FITS,
    ids=[f"{c[0]} {c[3]} to {c[4]}" for c in _FITS],
)
def test_fits(
    op: str, inputs: list[Any], attributes: Any, source: int, target: int, edits: Any
) -> None:
    found = fit(_node(op, inputs, **attributes), source, target)
    assert not found.problems
    assert found.drop == edits.get("drop", [])
    assert found.as_attribute == edits.get("as_attribute", [])
    assert found.add == {}


_BF16, _F8, _F16 = T.BFLOAT16, T.FLOAT8E5M2, T.FLOAT16
_PROBLEMS = [
    ("TensorScatter", [_F, _F, _I], {}, 24, 23, "new-operator"),
    ("Nothing", [_F], {}, 24, 23, "unknown-operator"),
    ("Relu", [_BF16], {}, 24, 12, "element-type"),
    ("Reshape", [_F8, _I], {}, 24, 18, "element-type"),
    ("Reshape", [_F, _I], {"allowzero": 1}, 24, 13, "attribute"),
    ("Shape", [_F], {"start": 1}, 24, 13, "attribute"),
    ("Pad", [_F, _I], {"mode": "wrap"}, 24, 18, "attribute-value"),
    ("ScatterND", [_F, _I, _F], {"reduction": "max"}, 24, 16, "attribute-value"),
    ("ScatterND", [_F, _I, _F], {"reduction": "add"}, 24, 13, "attribute"),
    ("Pad", [_F, _I, None, _I], {}, 24, 17, "input"),
    ("Softmax", [_F], {"axis": 1}, 24, 12, "changed-meaning"),
    ("MaxPool", [_F], {"kernel_shape": [2], "ceil_mode": 1}, 24, 21, "changed-meaning"),
    ("DequantizeLinear", [T.INT8, _F], {}, 13, 12, "changed-meaning"),
    ("Mod", [_F, _F], {}, 28, 27, "changed-meaning"),
    ("Attention", [_F, _F, _F, None, None, None, _I], {}, 24, 23, "input"),
    ("Cast", [_F], {"to": T.FLOAT8E8M0, "round_mode": "down"}, 24, 23, "attribute"),
]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "source", "target", "code"),
    _PROBLEMS,
    ids=[f"{c[0]} {c[3]} to {c[4]}: {c[5]}" for c in _PROBLEMS],
)
def test_does_not_fit(
    op: str, inputs: list[Any], attributes: Any, source: int, target: int, code: str
) -> None:
    found = fit(_node(op, inputs, **attributes), source, target)
    assert code in [problem.code for problem in found.problems]


def test_the_text_names_the_opset_that_brought_the_thing() -> None:
    (problem,) = fit(_node("Pad", [_F, _I, None, _I]), 24, 17).problems
    assert problem.text == "input `axes` does not exist before opset 18"
    (problem,) = fit(_node("Einsum", [_F], equation="i"), 28, 11).problems
    assert problem.text == "`Einsum` came with opset 12"
    (problem,) = fit(_node("Shape", [_F], start=1), 24, 13).problems
    assert problem.text == "attribute `start` does not exist before opset 15"


def test_an_unknown_type_is_a_problem_where_the_versions_differ() -> None:
    node = _node("Relu", [_F])
    node.inputs[0].type = None  # type: ignore[union-attr]  # an input that is given
    assert not fit(node, 24, 14).problems
    (problem,) = fit(node, 24, 13).problems
    assert problem.code == "unknown-element-type"


def test_a_changed_default_is_written_out() -> None:
    found = fit(_node("Softmax", [_F]), 24, 12)
    assert found.add == {"axis": -1}


def test_every_operator_fits_the_opset_it_is_at() -> None:
    """Comparing a version with itself changes nothing, for every operator that onnx has."""
    for schema in _ALL:
        if schema.domain or schema.deprecated:
            continue
        node = ir.Node("", schema.name, [], name="n")
        found = fit(node, schema.since_version, schema.since_version)
        assert (found.problems, found.drop, found.add, found.as_attribute) == ([], [], {}, [])


_ILLEGAL = [
    ("TensorScatter", [_F, _F], {}, 23, "unknown-operator"),
    ("Upsample", [_F, _F], {}, 24, "unknown-operator"),
    ("Relu", [_F], {"alpha": 1.0}, 24, "attribute"),
    ("Softmax", [_F], {"axis": 1.0}, 24, "attribute-type"),
    ("Cast", [_F], {}, 24, "attribute"),
    ("Relu", [_F, _F], {}, 24, "input"),
    ("MatMul", [_F, None], {}, 24, "input"),
    ("MatMul", [_F], {}, 24, "input"),
    ("Pad", [_F, _I], {"mode": "wrap"}, 18, "attribute-value"),
    ("Relu", [T.STRING], {}, 24, "element-type"),
]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "opset", "code"),
    _ILLEGAL,
    ids=[f"{c[0]} {c[3]}: {c[4]}" for c in _ILLEGAL],
)
def test_illegal(op: str, inputs: list[Any], attributes: Any, opset: int, code: str) -> None:
    problems = list(examine(_node(op, inputs, **attributes), opset))
    assert {problem.code for problem in problems} == {code}


def test_too_many_outputs_are_illegal() -> None:
    problems = list(examine(_node("Relu", [_F], outputs=2), 24))
    assert [problem.code for problem in problems] == ["output"]
