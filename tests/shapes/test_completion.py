"""Inferred types are written on values: shared where nobody edits them, else each its own."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnx_kvtool.shapes.annotations import Completion

TYPE = helper.make_tensor_type_proto(TensorProto.FLOAT16, ["batch", 3, "unk__0", None])


def _written(type_: onnx.TypeProto, count: int = 2, *, frozen: bool) -> list[ir.Value]:
    completion = Completion(frozen=frozen)
    values = [ir.Value(name=f"v{i}") for i in range(count)]
    for value in values:
        completion.write(value, type_)
    return values


@pytest.mark.parametrize("frozen", [False, True])
def test_names_that_inference_made_up_are_unknown(frozen: bool) -> None:
    value = _written(TYPE, frozen=frozen)[0]
    assert value.dtype == ir.DataType.FLOAT16
    assert value.shape == ir.Shape(["batch", 3, None, None])


def test_values_of_one_type_share_it_frozen() -> None:
    one, other = _written(TYPE, frozen=True)
    assert one.shape is other.shape
    assert one.type is other.type
    assert one.shape is not None
    with pytest.raises(TypeError, match="frozen"):
        one.shape[0] = 2


def test_values_can_be_edited_one_by_one() -> None:
    one, other = _written(TYPE, frozen=False)
    assert one.shape is not None
    one.shape[0] = 2
    one.dtype = ir.DataType.DOUBLE
    assert other.shape == ir.Shape(["batch", 3, None, None])
    assert other.dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_declared_stays(frozen: bool) -> None:
    completion = Completion(frozen=frozen)
    declared = ir.Shape([2, None, "rows", None])
    value = ir.Value(name="v", type=ir.TensorType(ir.DataType.FLOAT), shape=declared)
    completion.write(value, TYPE)
    assert value.dtype == ir.DataType.FLOAT
    assert value.shape == ir.Shape([2, 3, "rows", None])
    assert completion.added == [(value, value.type, declared)]


def test_a_type_that_says_nothing_writes_nothing() -> None:
    completion = Completion(frozen=False)
    value = ir.Value(name="v")
    completion.write(value, onnx.TypeProto())
    assert completion.added == []
    assert value.type is None


@pytest.mark.parametrize("frozen", [False, True])
def test_a_sequence_is_read_with_its_elements(frozen: bool) -> None:
    value = _written(helper.make_sequence_type_proto(TYPE), frozen=frozen)[1]
    assert value.type == ir.SequenceType(ir.TensorType(ir.DataType.FLOAT16))


def test_a_map_has_no_form() -> None:
    type_ = onnx.TypeProto()
    type_.map_type.key_type = TensorProto.INT64
    type_.map_type.value_type.CopyFrom(TYPE)
    value = _written(type_, frozen=False)[0]
    assert value.type is None
    assert value.shape is None
