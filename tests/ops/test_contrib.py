"""The attention operators of `com.microsoft`, read by the names of their documentation."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_kvtool.ops.contrib import CONTRIB_ATTENTIONS, DOMAIN, ContribAttention, contrib_facts
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.view import MalformedNode
from tests.grids import each


def schema(op_type: str) -> OpFacts:
    found = contrib_facts(DOMAIN, op_type)
    assert found is not None
    return found


def node(op_type: str, count: int, outputs: int = 3, **attributes: int) -> ir.Node:
    inputs = [ir.Value(name=f"i{i}") for i in range(count)]
    return ir.node(
        op_type,
        inputs,
        attributes,
        domain=DOMAIN,
        outputs=[ir.Value(name=f"o{i}") for i in range(outputs)],
    )


@each(
    ("op_type", "past", "present"),
    [
        pytest.param("GroupQueryAttention", ("i3", "i4"), ("o1", "o2"), id="GroupQueryAttention"),
        pytest.param("MultiHeadAttention", ("i6", "i7"), ("o1", "o2"), id="MultiHeadAttention"),
        pytest.param(
            "DecoderMaskedMultiHeadAttention",
            ("i5", "i6"),
            ("o1", "o2"),
            id="DecoderMaskedMultiHeadAttention",
        ),
        pytest.param("SparseAttention", ("i3", "i4"), ("o1", "o2"), id="SparseAttention"),
        pytest.param("Attention", ("i4",), ("o1",), id="Attention"),
    ],
)
def test_where_the_caches_are(op_type, past, present) -> None:
    view = ContribAttention(node(op_type, len(schema(op_type).inputs)))
    slots = view.facts.caches
    assert tuple(view.input(slot.past).name for slot in slots) == past
    assert tuple(view.output(slot.present).name for slot in slots) == present


@each("op_type", list(CONTRIB_ATTENTIONS))
def test_the_names_of_a_table_line_fit_together(op_type: str) -> None:
    names = [formal.name for formal in schema(op_type).inputs]
    assert len(set(names)) == len(names)
    for slot in CONTRIB_ATTENTIONS[op_type].caches:
        assert slot.past in names
        assert slot.present in [formal.name for formal in schema(op_type).outputs]
        assert slot.update is None or slot.update in names


def test_what_is_left_out_is_none() -> None:
    view = ContribAttention(node("MultiHeadAttention", 3, outputs=1))
    assert view.input("past_key") is None
    assert view.output("present_key") is None
    assert not view.is_sharing
    assert view.write_position is None


@each(
    ("made", "sharing", "position"),
    [
        pytest.param(node("GroupQueryAttention", 7), True, None, id="always"),
        pytest.param(node("MultiHeadAttention", 8), False, None, id="without the length"),
        pytest.param(node("MultiHeadAttention", 9), True, "i8", id="with the length"),
        pytest.param(node("Attention", 7), False, None, id="without the attribute"),
        pytest.param(
            node("Attention", 7, past_present_share_buffer=1), True, "i6", id="with the attribute"
        ),
    ],
)
def test_when_one_buffer_is_past_and_present(made, sharing, position) -> None:
    view = ContribAttention(made)
    assert view.is_sharing is sharing
    found = view.write_position
    assert (None if found is None else found.name) == position


def test_the_head_size_of_a_packed_query() -> None:
    packed = node("GroupQueryAttention", 7, num_heads=6, kv_num_heads=3)
    packed.replace_input_with(1, None)
    packed.replace_input_with(2, None)
    query = packed.inputs[0]
    assert query is not None
    for width, expected in ((60, 5), (61, None), ("H", None)):
        query.shape = ir.Shape(["B", "L", width])
        assert ContribAttention(packed).head_size == expected


@pytest.mark.parametrize(
    ("made", "code"),
    [
        pytest.param(ir.node("Attention", [ir.Value()]), "unknown-operator", id="another domain"),
        pytest.param(node("Gelu", 1), "unknown-operator", id="another operator"),
        pytest.param(node("Attention", 0), "missing-input", id="no input at all"),
    ],
)
def test_what_is_refused(made, code) -> None:
    with pytest.raises(MalformedNode) as caught:
        ContribAttention(made)
    assert caught.value.code == code
