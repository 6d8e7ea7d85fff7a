"""What follows from a size that is fixed, case by case: which nodes stay, and equal results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.walk import graphs, nodes, values
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.fixing.dynamic import dynamic_parts
from onnx_kvtool.rewrite.fixing.fix import fix_sizes
from tests.grids import each

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
_DIMS = {"B": 2, "S": 3, "P": 5}
_FEEDS = {
    "x": np.arange(2 * 3 * 7, dtype=np.float32).reshape(2, 3, 7) - 11,
    "past": np.arange(2 * 5, dtype=np.float32).reshape(2, 5),
    "ids": np.array([[4, 0, 6], [1, 1, 5]], np.int64),
    "flag": np.array(True),
}
_INPUTS = {
    "x": "float[B, S, 7] x",
    "past": "float[B, P] past",
    "ids": "int64[B, S] ids",
    "flag": "bool flag",
}

_CASES: dict[str, tuple[str, str, list[str]]] = {
    "Shape": ("int64[N] y", "y = Shape (x)", ["Constant"]),
    "a part of Shape, from the end": (
        "int64[N] y",
        "s = Shape <start = -2> (x)  two = Constant <value = int64[1] {2}> ()  y = Mul (s, two)",
        ["Constant"],
    ),
    "Size": ("int64 y", "y = Size (past)", ["Constant"]),
    "the target of Reshape": (
        "float[N, M] y",
        """s = Shape (x)  zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()  a = Gather (s, zero)
        b = Gather (s, one)  n = Mul (a, b)
        axes = Constant <value = int64[1] {0}> ()  n1 = Unsqueeze (n, axes)
        rest = Constant <value = int64[1] {-1}> ()  t = Concat <axis = 0> (n1, rest)
        y = Reshape (x, t)""",
        ["Reshape"],
    ),
    "a Reshape to the shape that is there": (
        "float[B, S, 7] y",
        "s = Shape (x)  r = Reshape (x, s)  y = Neg (r)",
        ["Neg"],
    ),
    "Slice between sizes": (
        "float[B, S, 7] y",
        """s = Shape <start = 1, end = 2> (x)  zero = Constant <value = int64[1] {0}> ()
        one = Constant <value = int64[1] {1}> ()  cut = Slice (past, zero, s, one)
        axes = Constant <value = int64[1] {2}> ()  wide = Unsqueeze (cut, axes)
        y = Add (x, wide)""",
        ["Slice", "Unsqueeze", "Add"],
    ),
    "a Slice of everything": (
        "float[B, P] y",
        """s = Shape <start = 1, end = 2> (past)  zero = Constant <value = int64[1] {0}> ()
        one = Constant <value = int64[1] {1}> ()  cut = Slice (past, zero, s, one)
        y = Abs (cut)""",
        ["Abs"],
    ),
    "Range of floats, by Cast": (
        "float[S] y",
        """s = Shape <start = 1, end = 2> (x)  axes = Constant <value = int64[1] {0}> ()
        n = Squeeze (s, axes)  zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()  r = Range (zero, n, one)
        y = Cast <to = 1> (r)""",
        ["Constant"],
    ),
    "a causal mask": (
        "float[B, S, 7] y",
        """s = Shape <start = 1, end = 2> (x)  axes = Constant <value = int64[1] {0}> ()
        n = Squeeze (s, axes)  zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()  r = Range (zero, n, one)
        last = Constant <value = int64[1] {1}> ()  column = Unsqueeze (r, last)
        sees = GreaterOrEqual (column, r)  yes = Constant <value = float {0}> ()
        no = Constant <value = float {-100.5}> ()  m = Where (sees, yes, no)
        y = MatMul (m, x)""",
        ["MatMul"],
    ),
    "ConstantOfShape and Expand of floats": (
        "float[B, S, 7] y",
        """s = Shape (x)  ones = ConstantOfShape <value = float[1] {1}> (s)
        half = Constant <value = float[1] {0.1}> ()  halves = Expand (half, s)
        a = Mul (x, ones)  y = Add (a, halves)""",
        ["Mul", "Add"],
    ),
    "the idiom that keeps -1 of an Expand": (
        "float[B, S, 7] y",
        """want = Constant <value = int64[3] {-1, -1, 7}> ()
        all = Constant <value = int64[1] {3}> ()
        ones = ConstantOfShape <value = int64[1] {1}> (all)
        minus = Constant <value = int64 {-1}> ()  keep = Equal (want, minus)
        t = Where (keep, ones, want)  e = Expand (x, t)  y = Neg (e)""",
        ["Neg"],
    ),
    "Tile and Where by a size": (
        "float[N, S, 7] y",
        """s = Shape <start = 0, end = 1> (x)  ones = Constant <value = int64[2] {1, 1}> ()
        t = Concat <axis = 0> (s, ones)  twice = Tile (x, t)
        two = Constant <value = int64[1] {2}> ()  c = Equal (s, two)  n = Neg (twice)
        y0 = Where (c, n, twice)  y = Abs (y0)""",
        ["Tile", "Neg", "Abs"],
    ),
    "an If that is decided, as an output": (
        "float[B, S, 7] y",
        """s = Shape <start = 1, end = 2> (x)  one = Constant <value = int64[1] {1}> ()
        more = Greater (s, one)  axes = Constant <value = int64[1] {0}> ()  c = Squeeze (more, axes)
        y = If (c) <
            then_branch = g1 () => (float[B, S, 7] a) { b = Neg (x)  a = Abs (b) },
            else_branch = g2 () => (float[B, S, 7] a) { a = Identity (x) }
        >""",
        ["Neg", "Abs"],
    ),
    "an If that is decided, whose branch hands out a constant": (
        "float[B, S, 7] y, float[2] z",
        """s = Shape <start = 1, end = 2> (x)  one = Constant <value = int64[1] {1}> ()
        less = Less (s, one)  axes = Constant <value = int64[1] {0}> ()  c = Squeeze (less, axes)
        y, z = If (c) <
            then_branch = g1 () => (float[B, S, 7] a, float[2] b) {
                b = Constant <value = float[2] {1, 2}> ()  a = Abs (x) },
            else_branch = g2 () => (float[B, S, 7] a, float[2] b) {
                b = Constant <value = float[2] {3, 4}> ()  a = Neg (x) }
        >""",
        ["Neg"],
    ),
    "an If in a branch of one that stays open": (
        "float[B, S, 7] y",
        """y = If (flag) <
            then_branch = g1 () => (float[B, S, 7] a) {
                s = Shape <start = 1, end = 2> (x)  one = Constant <value = int64[1] {1}> ()
                more = Greater (s, one)  axes = Constant <value = int64[1] {0}> ()
                c = Squeeze (more, axes)
                a = If (c) <
                    then_branch = g3 () => (float[B, S, 7] d) { d = Neg (x) },
                    else_branch = g4 () => (float[B, S, 7] d) { d = Abs (x) }
                >
            },
            else_branch = g2 () => (float[B, S, 7] a) {
                s = Shape (x)  e = Expand (x, s)  a = Abs (e)
            }
        >""",
        ["If", "Neg", "Abs"],
    ),
    "the body of a Loop": (
        "float[B, S, 7] y",
        """n = Constant <value = int64 {3}> ()  go = Constant <value = bool {1}> ()
        y = Loop (n, go, x) <body = body (int64 i, bool c, float[B, S, 7] v) =>
            (bool d, float[B, S, 7] w) {
            d = Identity (c)  s = Shape (x)  one = ConstantOfShape <value = float[1] {1}> (s)
            w = Add (v, one)
        }>""",
        ["Constant", "Constant", "Loop", "Identity", "Add"],
    ),
    "NonZero and ReduceProd, of which inference knows no elements": (
        "float[N] y",
        """s = Shape (x)  n = ReduceProd <keepdims = 1> (s)  flat = Reshape (x, n)
        t = Shape (flat)  ones = ConstantOfShape <value = int64[1] {1}> (t)  places = NonZero (ones)
        axes = Constant <value = int64[1] {0}> ()  p = Squeeze (places, axes)
        g = Gather (flat, p)  y = Neg (g)""",
        ["Reshape", "Gather", "Neg"],
    ),
    "what nobody reads": ("float[B, S, 7] y", "s = Shape (x)  d = Neg (x)  y = Abs (x)", ["Abs"]),
}


def _source(outputs: str, body: str) -> onnx.ModelProto:
    used = [text for name, text in _INPUTS.items() if name in _words(body)]
    return onnx.parser.parse_model(f"{_HEAD}main ({', '.join(used)}) => ({outputs}) {{ {body} }}")


def _words(body: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in body).split())


def _run(data: bytes, inputs: list[str]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # others wait busily
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: _FEEDS[name] for name in inputs})


@pytest.mark.parametrize(("outputs", "body", "left"), list(_CASES.values()), ids=list(_CASES))
def test_folded(outputs: str, body: str, left: list[str]) -> None:
    source = _source(outputs, body)
    model = ir.from_proto(source)
    declared = [value.name for value in model.graph.outputs]
    fixed = fix_sizes(model, _DIMS)
    assert fixed.refused == [] and fixed.inference is not None
    assert [node.op_type for _, _, node in nodes(model) if not _holds(node)] == [
        op for op in left if op != "Constant"
    ]
    assert dynamic_parts(model, fixed.inference) == []
    assert all(v.shape is not None and v.shape.is_static() for v in values(model) if v.name)
    assert [value.name for value in model.graph.outputs] == declared
    result = serialize(model)
    onnx.checker.check_model(result, full_check=True)
    inputs = [value.name for value in source.graph.input]
    for one, other in zip(
        _run(source.SerializeToString(), inputs), _run(result, inputs), strict=True
    ):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def _holds(node: ir.Node) -> bool:
    return node.op_type == "Constant"


def test_nothing_is_left_that_nobody_reads() -> None:
    model = ir.from_proto(_source("float[B, S, 7] y", _CASES["a causal mask"][1]))
    fix_sizes(model, _DIMS)
    read = {v for _, _, node in nodes(model) for v in node.inputs} | set(model.graph.outputs)
    for _, graph in graphs(model):
        assert all(value in read for value in graph.initializers.values())
        assert all(any(out in read for out in node.outputs) for node in graph)


def test_a_huge_constant_is_not_made() -> None:
    body = """s = Shape (past)  one = Constant <value = float[1] {1}> ()  e = Expand (one, s)
    y = Add (past, e)"""
    model = ir.from_proto(_source("float[B, P] y", body))
    fixed = fix_sizes(model, {"B": 65536, "P": 65536})
    assert [n.op_type for n in model.graph if n.op_type != "Constant"] == ["Expand", "Add"]
    assert fixed.inference is not None
    assert dynamic_parts(model, fixed.inference) == []
    assert all(value.const_value.nbytes <= 16 for value in model.graph.initializers.values())


def test_equal_constants_are_one() -> None:
    body = """s = Shape (x)  a = ConstantOfShape <value = float[1] {1}> (s)
    t = Shape (x)  b = ConstantOfShape <value = float[1] {1}> (t)  c = Add (x, a)  y = Mul (c, b)"""
    model = ir.from_proto(_source("float[B, S, 7] y", body))
    fix_sizes(model, _DIMS)
    assert len(model.graph.initializers) == 1


_TYPED = {"float16": 0x4200, "bfloat16": 0x4040, "double": 3, "uint8": 3, "int32": 3}
"""The number 3 as the parser takes it: of narrow floats it takes the bits."""


@each("name", [*_TYPED])
def test_constants_keep_their_type(name: str) -> None:
    three = _TYPED[name]
    text = f"""{_HEAD}main (float[B, S] x) => ({name}[B, S] y) {{
        s = Shape (x)  one = Constant <value = {name}[1] {{{three}}}> ()  y = Expand (one, s) }}"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    expected = model.graph.outputs[0].dtype
    fix_sizes(model, {"B": 2, "S": 3})
    (node,) = model.graph
    tensor = node.attributes["value"].as_tensor()
    assert tensor.dtype == expected == node.outputs[0].dtype
    assert tensor.numpy().astype(np.float32).tolist() == [[3.0] * 3] * 2


def test_functions_are_opened_where_sizes_matter() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "me" : 1]>
    main (float[B, S] x) => (float[B, S] z) { y = me.filled (x)  z = me.twice (y) }
    <domain: "me", opset_import: ["" : 17]>
    filled (v) => (w) {
        s = Shape (v)  o = ConstantOfShape <value = float[1] {1}> (s)  w = Add (v, o) }
    <domain: "me", opset_import: ["" : 17]>
    twice (v) => (w) { w = Add (v, v) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    fixed = fix_sizes(model, {"B": 2, "S": 3})
    assert [node.op_type for node in model.graph] == ["Add", "twice"]
    assert [key[1] for key in model.functions] == ["twice"]
    assert fixed.inference is not None
    assert dynamic_parts(model, fixed.inference) == []


_STALE: Mapping[str, tuple[str, dict[str, int], list[tuple[str, str]]]] = {
    "an operand of another size": (
        "main (float[A, 3] x, float[B, 3] w) => (float[N, 3] y) { y = Add (x, w) }",
        {"A": 2, "B": 5},
        [("contradicting-sizes", "Add")],
    ),
    "a size that the file declares": (
        "main (float[A, 3] x) => (float[4, 3] y) { y = Neg (x) }",
        {"A": 2},
        [("contradicting-sizes", "Neg")],
    ),
    "a weight of another size": (
        "main (float[A] x) => (float[N] y) <float[3] w = {1, 2, 3}> { y = Add (x, w) }",
        {"A": 2},
        [("contradicting-sizes", "Add")],
    ),
}


@pytest.mark.parametrize(("text", "dims", "expected"), list(_STALE.values()), ids=list(_STALE))
def test_sizes_that_contradict_the_model(
    text: str, dims: dict[str, int], expected: list[tuple[str, str]]
) -> None:
    model = ir.from_proto(onnx.parser.parse_model(_HEAD + text))
    refused = fix_sizes(model, dims).refused
    assert [(one.code, one.location.op) for one in refused] == expected
    for name, size in dims.items():
        assert f"`{name}` = {size}" in refused[0].message


_DYNAMIC: Mapping[str, tuple[str, list[tuple[str, str | None]], str]] = {
    "a name that was left": (
        "main (float[A, B] x, float[A] v) => (float[A, B] y) { y = Neg (x) }",
        [("symbolic-dimension", None)],
        "`x` is `A`",
    ),
    "a name in a sum": (
        "main (float[B, 'A + 2'] x) => (float[N, M] y) { y = Neg (x) }",
        [("symbolic-dimension", None)],
        "`A + 2`",
    ),
    "an input without a shape": (
        "main (float x, bool c) => (float y) { y = Neg (x) }",
        [],
        "",
    ),
    "positions of elements": (
        "main (float[B, 3] x) => (int64[2, N] y) { y = NonZero (x) }",
        [("dynamic-size", "NonZero")],
        "`y`",
    ),
    "a target that is an input": (
        """main (float[B, 3] x, int64[2] t) => (float[N, M] y) {
            z = Reshape (x, t)  y = Neg (z) }""",
        [("dynamic-size", "Reshape")],
        "`t`",
    ),
}


@each(("text", "expected", "said"), _DYNAMIC)
def test_what_stays_dynamic_is_named(
    text: str, expected: list[tuple[str, str | None]], said: str
) -> None:
    model = ir.from_proto(onnx.parser.parse_model(_HEAD + text.replace("'A + 2'", "A")))
    if "'A + 2'" in text:
        model.graph.inputs[0].shape = ir.Shape(["B", "A + 2"])
    fixed = fix_sizes(model, {"B": 2})
    assert fixed.inference is not None, fixed.refused
    found = dynamic_parts(model, fixed.inference)
    assert [(one.code, one.location.op) for one in found] == expected
    assert all(said in str(one) for one in found)


@pytest.mark.parametrize(
    ("growing", "said"), [(None, "raise --static"), (set(), "as long as the capacity where no")]
)
def test_what_a_count_of_tokens_says_has_a_remedy(growing: set[str] | None, said: str) -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            _HEAD
            + """main (int64[1] past_length) => (int64[N] y) <int64 zero = {0}, int64 one = {1}> {
            end = Squeeze (past_length)  y = Range (zero, end, one) }"""
        )
    )
    fixed = fix_sizes(model, {})
    assert fixed.inference is not None, fixed.refused
    (found,) = dynamic_parts(model, fixed.inference, growing=growing)
    assert said in (found.help or "")


@pytest.mark.parametrize("dims", [{}, {"B": 2, "S": 3}], ids=["no sizes", "sizes"])
def test_a_function_of_another_opset_keeps_it_where_the_model_does(dims: dict[str, int]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "me" : 1]>
    main (float[B, S] x) => (float[B, N] y) { y = me.sums (x) }
    <domain: "me", opset_import: ["" : 12]>
    sums (v) => (w) { s = Shape (v)  o = ConstantOfShape <value = float[1] {1}> (s)
        a = Add (v, o)  w = ReduceSum <axes = [1]> (a) }
    """
    result, report = lower(onnx.parser.parse_model(text), dims=dims, only=["Swish"])
    (function,) = result.functions.values()
    assert function.opset_imports[""] == 12
    assert report.verification.status == "equal"
