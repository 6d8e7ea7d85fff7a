"""Nodes that differ in names alone have one signature; whatever a schema asks about tells apart."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from onnx_kvtool.ops.schema import signature
from tests.grids import each

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _node(
    op_type: str = "Gather",
    types: tuple[ir.TypeProtocol | None, ...] = (ir.TensorType(FLOAT), ir.TensorType(INT64)),
    output: ir.TypeProtocol | None = None,
    name: str = "a",
    domain: str = "",
    **attributes: Any,
) -> ir.Node:
    inputs = [
        ir.Value(name=f"{name}.{i}", type=type_, shape=ir.Shape([len(name)]))
        for i, type_ in enumerate(types)
    ]
    node = ir.node(op_type, inputs, attributes, domain=domain, name=name)
    node.outputs[0].name = f"{name}.y" if name else ""
    node.outputs[0].type = output
    return node


def test_names_and_shapes_do_not_count() -> None:
    assert signature(_node(name="a", axis=1)) == signature(_node(name="other", axis=1))


def test_values_of_tensors_do_not_count() -> None:
    one, other = (_node("Constant", (), value=ir.tensor([n])) for n in (1, 2))
    assert signature(one) == signature(other)


_SEQUENCE = ir.SequenceType(ir.TensorType(FLOAT))


@each(
    "other",
    [
        pytest.param(_node("Concat"), id="another operator"),
        pytest.param(_node(domain="my"), id="another domain"),
        pytest.param(_node(types=(ir.TensorType(FLOAT),)), id="fewer inputs"),
        pytest.param(
            _node(types=(ir.TensorType(FLOAT), ir.TensorType(FLOAT))), id="another input type"
        ),
        pytest.param(_node(types=(ir.TensorType(FLOAT), None)), id="an input of unknown type"),
        pytest.param(_node(types=(_SEQUENCE, ir.TensorType(INT64))), id="a sequence"),
        pytest.param(_node(output=ir.TensorType(FLOAT)), id="a known output type"),
        pytest.param(_node(name=""), id="an output without a name"),
        pytest.param(_node(axis=1), id="an attribute more"),
    ],
)
def test_what_schemas_ask_about_counts(other: ir.Node) -> None:
    assert signature(_node()) != signature(other)


def test_an_absent_input_is_not_one_of_unknown_type() -> None:
    absent = _node(types=(ir.TensorType(FLOAT), None))
    absent.replace_input_with(1, None)
    assert signature(absent) != signature(_node(types=(ir.TensorType(FLOAT), None)))


def test_sequences_of_sequences_are_told_from_sequences() -> None:
    deep = ir.SequenceType(_SEQUENCE)
    assert signature(_node(types=(deep,))) != signature(_node(types=(_SEQUENCE,)))


@each(
    ("one", "other"),
    [
        pytest.param({"mode": "wrap"}, {"mode": "edge"}, id="strings"),
        pytest.param({"to": 1}, {"to": 7}, id="integers, which may name an element type"),
        pytest.param({"axis": 1}, {"axis": 1.0}, id="types of an attribute"),
        pytest.param({"axis": 1}, {"axes": 1}, id="names of an attribute"),
    ],
)
def test_attributes_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert signature(_node(**one)) != signature(_node(**other))
