"""What keeps a model from being rewritten is the same whichever way it is to go."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.model_io.model import origin, set_origin
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.rewrite.engine.guards import objections
from onnx_kvtool.rewrite.engine.rule import Options
from onnx_kvtool.rewrite.lower import legalise
from onnx_kvtool.rewrite.raise_ import raise_model
from onnx_kvtool.rewrite.raising.stage import RaiseSettings
from onnx_kvtool.rewrite.upgrade import upgrade
from tests.cache_models import one_update
from tests.grids import each

Verb = Literal["lower", "upgrade", "raise"]
_VERBS: tuple[Verb, ...] = ("lower", "upgrade", "raise")
_DEFECT = Diagnostic("duplicate-name", "error", Location(), "two values are called `x`")
_REMARK = Diagnostic("unsorted", "warning", Location(), "a node stands before its input")


def _model(opset: int = 24) -> ir.Model:
    source: ir.Model = ir.from_proto(one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2))
    source.opset_imports[""] = opset
    return source


def _with(model: ir.Model, *defects: Diagnostic, training: bool = False) -> ir.Model:
    held = (onnx.TrainingInfoProto(),) if training else ()
    set_origin(model, replace(origin(model), defects=defects, training=held))
    return model


def _without_import() -> ir.Model:
    source = _with(_model(), _DEFECT, training=True)
    del source.opset_imports[""]
    return source


@each("verb", _VERBS)
@each(
    ("model", "opset", "expected"),
    [
        pytest.param(_model(), 24, [], id="nothing"),
        pytest.param(_with(_model(), _REMARK), 24, [], id="a warning"),
        pytest.param(_without_import(), 24, ["no-opset-import"], id="no import before all else"),
        pytest.param(
            _with(_model(), _DEFECT, _REMARK, training=True),
            NEWEST + 1,
            ["duplicate-name"],
            id="defects before training information",
        ),
        pytest.param(
            _with(_model(), training=True), NEWEST + 1, ["training-info"], id="training information"
        ),
        pytest.param(_model(), NEWEST + 1, ["unknown-opset"], id="an opset that nobody knows"),
        pytest.param(_model(NEWEST + 1), None, [], id="an opset that nobody asks about"),
    ],
)
def test_objections(verb: Verb, model: ir.Model, opset: int | None, expected: list[str]) -> None:
    found = objections(model, verb, opset=opset)
    assert [one.code for one in found] == expected
    if expected == ["training-info"]:
        assert found[0].message.endswith(f"does not {verb}")


def test_training_graphs_may_stay_where_some_operators_are_rewritten_only() -> None:
    assert objections(_with(_model(), training=True), "lower", whole=False) == []


def test_each_way_asks() -> None:
    lowered = _with(_model(), training=True)
    assert [one.code for one in legalise(lowered, 18, Options()).refused] == ["training-info"]
    raised = _model()
    legalise(raised, 18, Options())
    upgraded = _with(ir.from_proto(ir.to_proto(raised)), training=True)
    assert [one.code for one in upgrade(upgraded, 24).refused] == ["training-info"]
    outcome = raise_model(_with(raised, training=True), RaiseSettings())
    assert [one.code for one in outcome.blocked] == ["training-info"]


@pytest.mark.parametrize(
    ("operator", "attribute", "expected"),
    [
        pytest.param("Gelu", 'approximate = "abc"', "`none`, `tanh`", id="by its body"),
        pytest.param("ReduceMax", 'axes_kind = "abc"', "`axes_kind`", id="an unknown attribute"),
    ],
)
def test_a_string_that_an_attribute_takes_at_no_opset_is_refused(
    operator: str, attribute: str, expected: str
) -> None:
    """A function body takes any other string for one of its own."""
    text = f"""<ir_version: 10, opset_import: ["" : 24]>
        g (float[3] x) => (float[3] y) {{ y = {operator}<{attribute}>(x) }}"""
    result = legalise(ir.from_proto(onnx.parser.parse_model(text)), 17, Options())
    (found,) = result.refused
    assert found.message.startswith("the node is malformed: ")
    assert expected in found.message


REFUSED_BY_ONNX = {  # inputs, node, and the opsets before and after
    "an axis that is not there": ("float[5] x, int64[1] k", "y, i = TopK <axis = 3> (x, k)", 10, 9),
    "no type": ("float[5] x", "y = BitCast <to = -1> (x)", 26, 18),
    "no channels": ("float[5, 7] x", "y = LpPool <ceil_mode = 1, kernel_shape = [2]> (x)", 21, 11),
    "too many batches": ("float[5] x, int64[1] k", "y = GatherND <batch_dims = 3> (x, k)", 12, 11),
}


@each(("inputs", "node", "source", "target"), REFUSED_BY_ONNX)
def test_what_onnx_refuses_is_malformed_and_no_bug(
    inputs: str, node: str, source: int, target: int
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {source}]> g ({inputs}) => (y){{ {node} }}'
    )
    with pytest.raises(kv.KvtoolError, match=r"malformed: .* onnx's rule for `\w+` says: "):
        kv.lower(model, opset=target, verify=False)


def test_a_rule_that_fails_on_a_sound_node_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: object) -> None:
        raise IndexError("planted")

    monkeypatch.setattr("onnx_kvtool.rewrite.engine.engine.Engine._replacement", planted)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2, 3] x) => (y) { y = Gelu (x) }'
    )
    with pytest.raises(IndexError, match="planted"):
        kv.lower(model, opset=18, verify=False)
