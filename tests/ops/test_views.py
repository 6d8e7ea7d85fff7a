"""Operator views: names, defaults and versions come from the schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.ops.operators import ScatterElements, ScatterND, TensorScatter
from onnx_kvtool.ops.view import MalformedNode, NodeView
from tests.cache_models import one_update
from tests.grids import each


def _node(op: str, inputs: list[str], **attributes: Any) -> ir.Node:
    node: ir.Node = ir.from_proto(helper.make_node(op, inputs, ["out"], **attributes))
    return node


def _tensor_scatter(past: Any, update: Any, **attributes: Any) -> TensorScatter:
    source: ir.Model = ir.from_proto(one_update(past, update, batch=2, **attributes))
    return TensorScatter(next(iter(source.graph)), 24)


def test_tensor_scatter_binds_the_defaults_of_the_schema() -> None:
    view = _tensor_scatter([2, 3, 7, 5], [2, 3, 4, 5])
    assert (view.axis, view.mode, view.rank, view.sequence_axis) == (-2, "linear", 4, 2)
    assert view.past_cache.name == "past_cache"
    assert view.update.name == "update"
    assert view.write_indices is not None and view.write_indices.name == "write_indices"
    assert view.present_cache.name == "present_cache"


@pytest.mark.parametrize("write_indices", ["", None], ids=["empty", "left out"])
def test_absent_write_indices_are_none(write_indices: str | None) -> None:
    assert _tensor_scatter([2, 7, 5], [2, 4, 5], write_indices=write_indices).write_indices is None


@each(
    ("past", "axis", "expected"),
    [
        ([2, 3, 7, 5], None, 2),
        ([2, 3, 7, 5], -1, 3),
        ([2, 3, 7, 5], -3, 1),
        ([2, 3, 7, 5], 1, 1),
        ([2, 7], 1, 1),
        ([2, 7], -1, 1),
        (None, 2, 2),
        (None, None, None),
        (None, -1, None),
    ],
)
def test_sequence_axis(past: Any, axis: int | None, expected: int | None) -> None:
    assert _tensor_scatter(past, past, axis=axis).sequence_axis == expected


@each(
    ("past", "axis", "code"),
    [
        ([2, 3, 7, 5], 0, "axis-is-batch"),
        ([2, 3, 7, 5], -4, "axis-is-batch"),
        ([2, 7], None, "axis-is-batch"),
        (None, 0, "axis-is-batch"),
        ([2, 3, 7, 5], 4, "axis-out-of-range"),
        ([2, 3, 7, 5], -5, "axis-out-of-range"),
        ([2], 1, "rank-mismatch"),
    ],
)
def test_a_sequence_axis_that_cannot_be(past: Any, axis: int | None, code: str) -> None:
    with pytest.raises(MalformedNode) as error:
        _ = _tensor_scatter(past, past, axis=axis).sequence_axis
    assert error.value.code == code


_MALFORMED: dict[str, tuple[Callable[[], object], str]] = {
    "an operator that the opset lacks": (
        lambda: TensorScatter(_node("TensorScatter", ["p", "u"]), 23),
        "unknown-operator",
    ),
    "an operator that never was": (lambda: NodeView(_node("Nothing", []), 24), "unknown-operator"),
    "a required input left out": (
        lambda: TensorScatter(_node("TensorScatter", ["p"]), 24),
        "missing-input",
    ),
    "a required input with an empty name": (
        lambda: TensorScatter(_node("TensorScatter", ["p", ""]), 24),
        "missing-input",
    ),
    "one input too many": (
        lambda: TensorScatter(_node("TensorScatter", ["p", "u", "w", "x"]), 24),
        "too-many-inputs",
    ),
    "an unknown mode": (
        lambda: TensorScatter(_node("TensorScatter", ["p", "u"], mode="ring"), 24),
        "bad-mode",
    ),
    "a mode of another type": (
        lambda: TensorScatter(_node("TensorScatter", ["p", "u"], mode=1), 24),
        "attribute-type",
    ),
    "a reduction below 16": (
        lambda: ScatterND(_node("ScatterND", ["d", "i", "u"], reduction="none"), 13),
        "unknown-attribute",
    ),
    "max below 18": (
        lambda: ScatterND(_node("ScatterND", ["d", "i", "u"], reduction="max"), 16),
        "bad-reduction",
    ),
    "a reduction that never was": (
        lambda: ScatterElements(_node("ScatterElements", ["d", "i", "u"], reduction="or"), 18),
        "bad-reduction",
    ),
}


@each(("build", "code"), _MALFORMED)
def test_malformed(build: Callable[[], object], code: str) -> None:
    with pytest.raises(MalformedNode) as error:
        build()
    assert error.value.code == code


def test_an_attribute_that_refers_to_a_parameter_is_not_a_value() -> None:
    node = _node("TensorScatter", ["p", "u"])
    node.attributes["mode"] = ir.RefAttr("mode", "how", ir.AttributeType.STRING)
    with pytest.raises(MalformedNode) as error:
        TensorScatter(node, 24)
    assert error.value.code == "unbound-attribute"


@each("opset", [11, 13, 16, 18, 24])
@each(("op", "view"), [("ScatterND", ScatterND), ("ScatterElements", ScatterElements)])
def test_scatter_versions(op: str, view: type, opset: int) -> None:
    """The version that an opset means, with `reduction` none where it is not written."""
    seen = view(_node(op, ["data", "indices", "updates"]), opset)
    assert seen.facts.since_version == min(opset, 18)
    assert seen.reduction == "none"
    assert [v.name for v in (seen.data, seen.indices, seen.updates)] == [
        "data",
        "indices",
        "updates",
    ]
    if op == "ScatterElements":
        assert seen.axis == 0


@each(("reduction", "lowest"), [("add", 16), ("mul", 16), ("max", 18), ("min", 18)])
@each("view", [ScatterND, ScatterElements])
def test_reductions_and_their_opsets(view: type, reduction: str, lowest: int) -> None:
    node = _node(view.__name__, ["d", "i", "u"], reduction=reduction)
    assert view(node, lowest).reduction == reduction
    with pytest.raises(MalformedNode):
        view(node, lowest - 1)


@each("opset", range(11, onnx.defs.onnx_opset_version() + 1))
def test_views_name_what_the_schemas_name(opset: int) -> None:
    """A view reads inputs by name; this fails when a schema renames one."""
    for op, names in {
        "ScatterND": ["data", "indices", "updates"],
        "ScatterElements": ["data", "indices", "updates"],
        "TensorScatter": ["past_cache", "update", "write_indices"],
    }.items():
        if op == "TensorScatter" and opset < 24:
            continue
        assert [i.name for i in onnx.defs.get_schema(op, opset, "").inputs] == names
