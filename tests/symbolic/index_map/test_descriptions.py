"""What each operator's output holds, in words; graphs are written as ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.expressions import text
from onnx_kvtool.symbolic.index_maps import IndexMaps
from tests.grids import each, rest

_INPUTS = (
    "int64 start, int64[B] w, int64[B2] v, int64[L] pos, int64[1] one, int64[B, L] grid, "
    "int32[L] small, float[L] real, bool[B, L] flag, float[B, 3, S, 5] cache, float[B, 3, L, 5] upd"
)

# Name: (graph body whose last output is `y`, shape, elements). Coordinates are i, j, k, l.
_CASES: dict[str, tuple[str, str, str]] = {
    "Constant, a counter": (
        "y = Constant<value = int64[2, 3] {0, 1, 2, 3, 4, 5}>()",
        "2, 3",
        "3 * i + j",
    ),
    "Constant, a list": ("y = Constant<value_ints = [0, 3, 1]>()", "3", "[0, 3, 1][i]"),
    "Constant, index tuples": (
        "y = Constant<value = int64[3, 2, 2] {0, 7, 0, 8, 1, 3, 1, 4, 2, 5, 2, 6}>()",
        "3, 2, 2",
        "i | [7, 3, 5][i] + j",
    ),
    "Constant, wrapped rows": (
        "y = Constant<value = int64[3, 3] {6, 0, 1, 3, 4, 5, 4, 5, 6}>()",
        "3, 3",
        "mod([6, 3, 4][i] + j, 7)",
    ),
    "Constant, no pattern": (
        "y = Constant<value = int64[2, 9] {1,5,2,9,1,1,2,3,8,1,2,4,3,3,9,0,0,7}>()",
        "2, 9",
        "y[i, j]",
    ),
    "an input is a symbol": ("y = Identity(grid)", "B, L", "grid[i, j]"),
    "a coordinate on an axis of size 1 is 0": ("y = Identity(one)", "1", "one[0]"),
    "Flatten of a matrix": (
        "y = Flatten<axis = 2>(grid)",
        "B * L, 1",
        "grid[div(i, L), mod(i, L)]",
    ),
    "Flatten of a counter": (
        "c = Constant<value = int64[2, 3] {0, 1, 2, 3, 4, 5}>()  y = Flatten<axis = 2>(c)",
        "6, 1",
        "i",
    ),
    "GatherND": (
        (
            "a = Constant<value = int64[2, 2] {1, 0, 1, 1}>()"
            "c = Constant<value = int64[2, 3] {0, 1, 2, 3, 4, 5}>()  y = GatherND(c, a)"
        ),
        "2",
        "i + 3",
    ),
    "GatherND of rows, from the end": (
        (
            "a = Constant<value = int64[2, 1] {-1, -2}>()"
            "c = Constant<value = int64[2, 3] {0, 1, 2, 3, 4, 5}>()  y = GatherND(c, a)"
        ),
        "2, 3",
        "j - 3 * i + 3",
    ),
    "Shape": ("y = Shape(cache)", "4", "B | 3 | S | 5"),
    "Shape, a part": ("y = Shape<start = -2, end = 3>(cache)", "1", "S"),
    "Size": ("y = Size(upd)", "", "15 * B * L"),
    "Range over a dimension": (
        (
            "s = Shape<start = 2, end = 3>(upd)  n = Squeeze(s)  a = Constant<value_int = 0>()"
            "d = Constant<value_int = 1>()  y = Range(a, n, d)"
        ),
        "L",
        "i",
    ),
    "Range backwards": (
        (
            "a = Constant<value_int = 7>()  b = Constant<value_int = 0>()"
            "d = Constant<value_int = -2>()  y = Range(a, b, d)"
        ),
        "4",
        "-2 * i + 7",
    ),
    "Range of unknown length": (
        "a = Constant<value_int = 0>()  d = Constant<value_int = 1>()  y = Range(a, start, d)",
        "max(0, start)",
        "i",
    ),
    "ConstantOfShape": (
        "s = Shape<start = 0, end = 1>(w)  y = ConstantOfShape<value = int64[1] {-1}>(s)",
        "B",
        "-1",
    ),
    "OneHot": (
        "d = Constant<value_int = 4>()  p = Constant<value_ints = [0, 1]>()  y = OneHot(w, d, p)",
        "B, 4",
        "(if((-w[i] - 1 < 0), w[i], w[i] + 4) - j == 0)",
    ),
    "Add broadcasts": (
        "a = Constant<value_ints = [1]>()  b = Unsqueeze(w, a)  y = Add(b, pos)",
        "B, L",
        "pos[j] + w[i]",
    ),
    "sums cancel": ("a = Add(pos, start)  y = Sub(a, pos)", "L", "start"),
    "Mul of constants and sums": (
        "c = Constant<value_int = 3>()  a = Add(pos, c)  y = Mul(a, c)",
        "L",
        "3 * pos[i] + 9",
    ),
    "Div without a rest": (
        "c = Constant<value_int = 3>()  a = Mul(pos, c)  y = Div(a, c)",
        "L",
        "pos[i]",
    ),
    "Div of what may be negative": ("c = Constant<value_int = 3>()  y = Div(pos, c)", "L", "y[i]"),
    "Mod": ("c = Constant<value_int = 16>()  y = Mod(pos, c)", "L", "mod(pos[i], 16)"),
    "Mod of Mod": (
        "c = Constant<value_int = 16>()  a = Mod(pos, c)  b = Add(a, start)  y = Mod(b, c)",
        "L",
        "mod(pos[i] + start, 16)",
    ),
    "Mod that changes nothing": (
        "c = Constant<value_int = 9>()  a = Constant<value_ints = [0, 1, 2]>()  y = Mod(a, c)",
        "3",
        "i",
    ),
    "Mod with fmod of what may be negative": (
        "c = Constant<value_int = 9>()  y = Mod<fmod = 1>(pos, c)",
        "L",
        "y[i]",
    ),
    "Max of equal sizes": (
        "a = Shape<start = 0, end = 1>(w)  b = Shape<start = 0, end = 1>(grid)  y = Max(a, b)",
        "1",
        "B",
    ),
    "Max of unrelated sizes": ("a = Shape(w)  b = Shape(v)  y = Max(a, b)", "1", "max(B, B2)"),
    "Clip": (
        "a = Constant<value_int = 0>()  b = Constant<value_int = 9>()  y = Clip(pos, a, b)",
        "L",
        "-max(-9, -max(0, pos[i]))",
    ),
    "Cast to int32 that fits": ("s = Shape(pos)  y = Cast<to = 6>(s)", "1", "L"),
    "Cast to int32 that may not fit": ("y = Cast<to = 6>(pos)", "L", "y[i]"),
    "Cast of int32": ("y = Cast<to = 7>(small)", "L", "small[i]"),
    "Cast of floats": ("y = Cast<to = 7>(real)", "L", "y[i]"),
    "a mask in floats": (
        (
            "a = Equal(pos, start)  m = Cast<to = 1>(a)  c = Constant<value_float = 1.0>()"
            "n = Sub(c, m)  y = Identity(n)"
        ),
        "L",
        "-(pos[i] - start == 0) + 1",
    ),
    "floats that are no small integers": ("y = Add(real, real)", "L", ""),
    "Equal of one-hot rows": (
        (
            "a = Constant<value_ints = [1]>()  b = Unsqueeze(w, a)"
            "r = Constant<value_ints = [0, 1, 2, 3]>()  y = Equal(b, r)"
        ),
        "B, 4",
        "(j - w[i] == 0)",
    ),
    "Less that is certain": (
        "s = Shape(pos)  c = Constant<value_int = 0>()  y = Less(s, c)",
        "1",
        "0",
    ),
    "GreaterOrEqual": ("y = GreaterOrEqual(pos, start)", "L", "(start - pos[i] - 1 < 0)"),
    "And, Not": ("a = Not(flag)  y = And(a, flag)", "B, L", "0"),
    "Where with a decided condition": (
        (
            "c = Constant<value_int = 0>()  s = Shape<start = 0, end = 1>(cache)  l = Less(s, c)"
            "y = Where(l, one, s)"
        ),
        "1",
        "B",
    ),
    "Where with an open condition": (
        (
            "c = Constant<value_int = 0>()  l = Less(pos, c)  n = Constant<value_int = 16>()"
            "a = Add(pos, n)  y = Where(l, a, pos)"
        ),
        "L",
        "if((-pos[i] - 1 < 0), pos[i], pos[i] + 16)",
    ),
    "Where per component": (
        (
            "m = Constant<value = bool[2] {1, 0}>()  a = Constant<value_ints = [-1]>()"
            "p = Unsqueeze(pos, a)  y = Where(m, start, p)"
        ),
        "L, 2",
        "if(j, pos[i], start)",
    ),
    "Transpose": ("y = Transpose(grid)", "L, B", "grid[j, i]"),
    "Squeeze of an axis that must be 1": (
        "a = Constant<value_ints = [0]>()  y = Squeeze(w, a)",
        "",
        "w[0]",
    ),
    "Squeeze of whatever is 1": ("y = Squeeze(one)", "", "one[0]"),
    "Expand by its operand": (
        "a = Constant<value_ints = [1]>()  b = Unsqueeze(w, a)  s = Shape(grid)  y = Expand(b, s)",
        "B, L",
        "w[i]",
    ),
    "Expand to the larger of two shapes": (
        (
            "a = Constant<value_ints = [1]>()  b = Unsqueeze(w, a)  s = Shape(b)  t = Shape(grid)"
            "m = Max(s, t)  y = Expand(grid, m)"
        ),
        "B, L",
        "grid[i, j]",
    ),
    "Tile": ("r = Constant<value_ints = [2]>()  y = Tile(pos, r)", "2 * L", "pos[mod(i, L)]"),
    "Reshape adds ones": (
        "s = Constant<value_ints = [-1, 1, 1]>()  y = Reshape(w, s)",
        "B, 1, 1",
        "w[i]",
    ),
    "Reshape to one axis": (
        "s = Constant<value_ints = [-1]>()  y = Reshape(grid, s)",
        "B * L",
        "grid[div(i, L), mod(i, L)]",
    ),
    "Reshape of a grid of numbers": (
        (
            "c = Constant<value = int64[2, 3] {0, 1, 2, 3, 4, 5}>()"
            "s = Constant<value_ints = [-1]>()"
            "y = Reshape(c, s)"
        ),
        "6",
        "i",
    ),
    "Reshape to two axes": (
        (
            "c = Constant<value = int64[6] {0, 1, 2, 3, 4, 5}>()"
            "s = Constant<value_ints = [3, -1]>()"
            "y = Reshape(c, s)"
        ),
        "3, 2",
        "2 * i + j",
    ),
    "Reshape to a computed size, which may be 0 and then means another": (
        "y = Reshape(one, one)",
        "?",
        "y[i]",
    ),
    "Concat of shapes": (
        (
            "a = Shape<start = 0, end = 1>(w)  b = Constant<value_ints = [3, 1]>()"
            "y = Concat<axis = 0>(a, b)"
        ),
        "3",
        "B | 3 | 1",
    ),
    "Concat of index tuples": (
        (
            "a = Constant<value_ints = [-1]>()  b = Unsqueeze(pos, a)  c = Add(b, start)"
            "y = Concat<axis = -1>(c, b)"
        ),
        "L, 2",
        "pos[i] + start | pos[i]",
    ),
    "Gather of a size from the end": (
        "s = Shape(cache)  a = Constant<value_int = -2>()  y = Gather(s, a)",
        "",
        "S",
    ),
    "Gather with a computed index": (
        "c = Constant<value_ints = [5, 6, 7]>()  y = Gather(c, start)",
        "",
        "if((-start - 1 < 0), start, start + 3) + 5",
    ),
    "Gather of a column": (
        "a = Constant<value_int = -1>()  y = Gather<axis = 1>(grid, a)",
        "B",
        "grid[i, L - 1]",
    ),
    "Slice of a Range from a computed start": (
        (
            "c = Constant<value_ints = [0, 1, 2, 3, 4, 5, 6]>()  a = Constant<value_ints = [0]>()"
            "s = Unsqueeze(start, a)  n = Constant<value_int = 2>()  t = Add(start, n)"
            "e = Unsqueeze(t, a)  y = Slice(c, s, e, a)"
        ),
        "?",
        "i + if((-start - 1 < 0), start, max(0, start + 7))",
    ),
    "Slice backwards": (
        (
            "a = Constant<value_ints = [-1]>()  e = Constant<value_ints = [-100]>()"
            "z = Constant<value_ints = [0]>()  y = Slice(pos, a, e, z, a)"
        ),
        "max(0, L - max(-1, L - 100) - 1)",
        "pos[L - i - 1]",
    ),
    "Slice of a shape": (
        (
            "s = Shape(cache)  a = Constant<value_ints = [2]>()"
            "e = Constant<value_ints = [9223372036854775807]>()  y = Slice(s, a, e)"
        ),
        "2",
        "S | 5",
    ),
    "Split": (
        "s = Shape(cache)  n = Constant<value_ints = [1, 3]>()  x, y = Split(s, n)",
        "3",
        "3 | S | 5",
    ),
    "ScatterElements in a shape": (
        (
            "s = Shape(cache)  a = Constant<value_ints = [2]>()  n = Shape(pos)"
            "y = ScatterElements(s, a, n)"
        ),
        "4",
        "B | 3 | L | 5",
    ),
    "CumSum of ones": (
        (
            "s = Shape(pos)  o = ConstantOfShape<value = int64[1] {1}>(s)"
            "a = Constant<value_int = 0>()"
            "y = CumSum(o, a)"
        ),
        "L",
        "i + 1",
    ),
    "CumSum along two axes, which fails": (
        (
            "s = Shape(pos)  o = ConstantOfShape<value = int64[1] {1}>(s)"
            "a = Constant<value_ints = [0, 0]>()"
            "y = CumSum(o, a)"
        ),
        "L",
        "y[i]",
    ),
    "ScatterElements of a scalar, which fails": (
        (
            "a = Constant<value_int = 0>()  n = Constant<value_int = 7>()"
            "y = ScatterElements(a, a, n)"
        ),
        "",
        "y",
    ),
}


def _described(body: str, opset: int = 18, equalities: SizeEqualities | None = None) -> IndexMap:
    maps, y = _maps(body, opset, equalities)
    return maps.of(y)


def _maps(
    body: str, opset: int = 18, equalities: SizeEqualities | None = None
) -> tuple[IndexMaps, ir.Value]:
    header = f'<ir_version: 9, opset_import: ["" : {opset}]>'
    proto = onnx.parser.parse_model(f"{header} g ({_INPUTS}) => (y) {{ {body} }}")
    model = ir.from_proto(proto)
    annotate(model, lambda node: True)
    return IndexMaps(opset, equalities), model.graph.outputs[0]


def _words(held: IndexMap) -> tuple[str, str]:
    sizes = ", ".join(
        "?" if "size(" in str(s) or "if(" in str(s) else str(s) for s in held.shape or ()
    )
    return sizes, " | ".join(text(part) for part in held.parts)


@pytest.mark.long
@each(("body", "shape", "elements"), _CASES)
def test_an_output_holds_what_is_said(body: str, shape: str, elements: str) -> None:
    assert _words(_described(body)) == (shape, elements)


def test_sizes_that_may_differ_make_a_broadcast_opaque_until_they_are_granted() -> None:
    maps, y = _maps("y = Add(w, v)")
    assert str(maps.of(y).element) == "y[i]"
    sizes = {(str(u.size), u.axis) for u in maps.unrelated(y)}
    assert sizes >= {("B", 0), ("B2", 0)}
    granted = _described("y = Add(w, v)", equalities=SizeEqualities([("B", "B2")]))
    assert _words(granted) == ("B", "v[i] + w[i]")


def test_an_operator_of_a_function_without_types_is_described() -> None:
    # Only the types that the operators themselves fix are known inside a function.
    start = ir.Value(name="start", shape=ir.Shape(()))
    length = ir.Value(name="n", shape=ir.Shape(()))
    zero, one = (ir.node("Constant", [], {"value_int": n}).outputs[0] for n in (0, 1))
    counter = ir.node("Range", [zero, length, one]).outputs[0]
    y = ir.node("Add", [counter, start]).outputs[0]
    assert _words(IndexMaps(18).of(y)) == ("max(0, n)", "i + start")


def test_arithmetic_of_unknown_type_is_not_described() -> None:
    a, b = (ir.Value(name=n, shape=ir.Shape(())) for n in "ab")
    y = ir.node("Add", [a, b]).outputs[0]
    y.name, y.shape = "y", ir.Shape(())
    assert _words(IndexMaps(18).of(y)) == ("", "y")


def test_an_initializer_that_a_caller_may_override_is_a_symbol() -> None:
    body = "g (int64[2] c = {4, 5}) => (y) { y = Identity(c) }"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {body}')
    model = ir.from_proto(proto)
    annotate(model, lambda node: True)
    y = model.graph.outputs[0]
    overridable = model.graph.inputs[0].is_graph_input() and "c" in model.graph.initializers
    assert overridable
    assert _words(IndexMaps(18).of(y)) == ("2", "c[i]")


@pytest.mark.parametrize("stored", [True, False], ids=["a file that is there", "a missing file"])
def test_small_integers_are_read_from_a_file_that_is_there(tmp_path: Path, stored: bool) -> None:
    if stored:
        (tmp_path / "data").write_bytes(np.arange(5, dtype="<i8").tobytes())
    tensor = ir.ExternalTensor(
        "data", 0, 40, ir.DataType.INT64, shape=ir.Shape([5]), name="c", base_dir=tmp_path
    )
    c = ir.Value(name="c", const_value=tensor, type=ir.TensorType(ir.DataType.INT64))
    c.shape = ir.Shape([5])
    graph = ir.Graph([], [], nodes=[], initializers=[c])
    assert graph.initializers["c"] is c
    assert _words(IndexMaps(18).of(c)) == ("5", "i" if stored else "c[i]")


def test_a_cast_that_may_not_fit_is_seen_through_on_demand() -> None:
    maps, y = _maps("a = Add(pos, start)  y = Cast<to = 6>(a)")
    held = maps.of(y)
    assert held.element is not None
    assert str(held.element) == "y[i]"
    assert str(maps.widened(held.element, held.facts)) == "pos[i] + start"


@pytest.mark.long
@pytest.mark.parametrize("op", ["Add", *rest("Sub", "Mul", "Mod", "Max")])
def test_a_chain_of_2000_nodes_is_described(op: str) -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["L"]))
    two = ir.node("Constant", [], {"value_int": 2}).outputs[0]
    for _ in range(2_000):
        value = ir.node(op, [value, two]).outputs[0]
    assert IndexMaps(18).of(value).element is not None
