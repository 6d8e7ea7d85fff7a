"""What an index is wherever it is legal, and once more is known of it."""

from __future__ import annotations

from typing import Any

import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.expressions import Element, Expr, Modulo, coordinate, integer, variable
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, as_index, simplified
from tests.grids import part

_SHAPES = {
    "fixed sizes": ("2,3,16,5", "2,3,4,5"),
    "a batch of one, one row": ("1,3,16,5", "1,3,1,5"),
    "an unknown batch, one row": ("B,3,16,5", "B,3,1,5"),
    "unknown batch and length": ("B,3,16,5", "B,3,L,5"),
    "unknown capacity": ("2,3,S,5", "2,3,L,5"),
    "all unknown": ("B,H,S,D", "B,H,L,D"),
}
_FORMS: dict[str, dict[str, Any]] = {
    "tuples": {"via": "scatternd"},
    "unchecked tuples": {"via": "scatternd", "bounds": "unchecked"},
    "elements": {"via": "scatterelements"},
    "int32 elements": {"via": "scatterelements", "index_dtype": "int32"},
    "unchecked int32 elements": {
        "via": "scatterelements", "index_dtype": "int32", "bounds": "unchecked",
    },
}  # fmt: skip


def _lowered(cache: str, update: str, mode: str, options: dict[str, Any]) -> ir.Model:
    batch = cache.split(",", maxsplit=1)[0]
    proto = onnx.parser.parse_model(
        f"""<ir_version: 11, opset_import: ["" : 24]>
        g (float[{cache}] past, float[{update}] update, int64[{batch}] w) => (float[{cache}] out) {{
            out = TensorScatter<axis = 2, mode = "{mode}">(past, update, w)
        }}"""
    )
    model, _ = kv.lower(ir.from_proto(proto), opset=18, verify=False, **options)
    return ir.from_proto(ir.to_proto(model))


@part(3)
@pytest.mark.parametrize("options", _FORMS.values(), ids=_FORMS)
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("cache", "update"), _SHAPES.values(), ids=_SHAPES)
def test_the_index_of_a_lowered_update_is_the_start_and_the_row(
    cache: str, update: str, mode: str, options: dict[str, Any]
) -> None:
    model = _lowered(cache, update, mode, options)
    annotate(model, lambda node: True)
    maps = IndexMaps(18)
    (scatter,) = (n for _, _, n in nodes(model) if n.op_type.startswith("Scatter"))
    index, sizes = maps.of(_input(scatter, 1)), maps.shape(_input(scatter, 0))
    assert sizes is not None and index.shape is not None
    lead = [coordinate(i) if size.number != 1 else integer(0) for i, size in enumerate(index.shape)]
    start = variable(Element(_input_named(model, "w"), (lead[0],)))
    row = start + lead[2]
    capacity, length = sizes[2], index.shape[2]
    fits = Facts(index.shape, (capacity - length, capacity - 1))
    if scatter.op_type == "ScatterND":
        components = [index.component(k) for k in range(3)]
        for k in (0, 1):
            assert _element(components[k], sizes[k], fits, maps) == lead[k]
        found = _element(components[2], capacity, fits, maps)
    else:
        found = _element(index, capacity, fits, maps)
    if mode == "circular":
        atom = found.atom
        assert isinstance(atom, Modulo)
        assert (atom.of, atom.by) == (row, capacity)
    else:
        assert found == row


def _element(held: Any, size: Expr, facts: Facts, maps: IndexMaps) -> Expr:
    assert held is not None and held.element is not None
    return as_index(maps.widened(held.element, facts), size, facts)


def _input(node: ir.Node, place: int) -> ir.Value:
    value = node.inputs[place]
    assert value is not None
    return value


def _input_named(model: ir.Model, name: str) -> ir.Value:
    return next(value for value in model.graph.inputs if value.name == name)


_START = variable(Element(ir.Value(name="start", type=ir.TensorType(ir.DataType.INT64)), ()))


def test_the_wrap_of_a_negative_start_goes_once_it_is_known_not_to_be() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        g (int64[1] start, int64[1] end) => (y) {
            r = Constant<value = int64[8] {0, 1, 2, 3, 4, 5, 6, 7}>()
            y = Slice(r, start, end)
        }"""
    )
    model = ir.from_proto(proto)
    annotate(model, lambda node: True)
    held = IndexMaps(18).of(model.graph.outputs[0])
    start = variable(Element(model.graph.inputs[0], (integer(0),)))
    assert held.element is not None and held.element != coordinate(0) + start
    known = held.facts.given(start)
    assert simplified(held.element, known) == coordinate(0) + start


def test_a_choice_between_two_legal_rows_stays() -> None:
    # Both 3 and 5 are rows of the cache: nothing may be dropped.
    from onnx_kvtool.symbolic.simplification import choose, is_less

    facts = Facts()
    index = choose(is_less(_START, integer(0), facts), integer(3), integer(5), facts)
    assert as_index(index, integer(8), facts) == index


def test_a_guard_inside_a_cache_that_is_longer_than_it_stays() -> None:
    from onnx_kvtool.symbolic.simplification import choose, is_less

    facts = Facts()
    index = choose(is_less(_START, integer(0), facts), integer(100), _START, facts)
    assert as_index(index, integer(100), facts) == _START
    assert as_index(index, integer(101), facts) == index
