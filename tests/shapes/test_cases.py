"""Shapes that follow, unknowns with their reasons, and conflicts, each in a small model."""

from __future__ import annotations

from unittest import mock

import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.shapes.annotations import innermost
from onnx_kvtool.shapes.inference import Inference, infer_model
from onnx_kvtool.symbolic.dimensions import shape_words
from onnx_kvtool.symbolic.knowledge import Knowledge
from tests.faults.hostile import HOSTILE
from tests.grids import each


def model(text: str, opset: int = 24, more: str = "") -> ir.Model:
    """Return a model of this text, in an opset, perhaps with operators of `com.microsoft`."""
    imports = f'"": {opset}, "com.microsoft": 1, "my": 1'
    header = f"<ir_version: 10, opset_import: [{imports}]>\n"
    return ir.from_proto(onnx.parser.parse_model(header + text + more))


def shapes(found: Inference) -> dict[str, tuple[int | str | None, ...] | None]:
    known = found.run.knowledge
    return {v.name or "": shape_words(known.shapes.get(v)) for v in found.run.values}


FUNCTION = """
<domain: "my", opset_import: ["": 24]>
Halves <axis> (x) => (first, second) {
    first, second = Split <axis: int = @axis, num_outputs = 2> (x)
}
"""

KNOWN = [
    pytest.param(
        "m (float[B, 3, P, 7] past, float[B, 3, L, 7] new) => (float[a, b, c, d] y) "
        "{ y = Concat <axis = 2> (past, new) }",
        "y",
        ("B", 3, "L + P", 7),
        id="a concatenation is as long as its parts together",
    ),
    pytest.param(
        "m (float[B, L, 21] x) => (y) {"
        "  n = Shape (x) "
        "  bl = Slice (n, a, b) "
        "  s = Concat <axis = 0> (bl, tail) "
        "  y = Reshape (x, s) }",
        "y",
        ("B", "L", 3, 7),
        id="a shape tensor is followed through Slice and Concat",
    ),
    pytest.param(
        "m (float[B, L, 6] x) => (y) { y = Reshape (x, rest) }",
        "y",
        ("2 * B * L", 3),
        id="what is left over in a Reshape is a quotient of polynomials",
    ),
    pytest.param(
        "m (float[S, 5] x) => (y) { y = Slice (x, a, three) }",
        "y",
        ("Min(3, S)", 5),
        id="a slice is clamped to its axis",
    ),
    *(
        pytest.param(
            f"m (float[{size}] x) => (y) <int64[1] from = {{{start}}}, int64[1] to = {{{end}}}, "
            f"int64[1] z = {{0}}, int64[1] by = {{{step}}}> {{ y = Slice (x, from, to, z, by) }}",
            "y",
            (taken,),
            id=f"[{start}:{end}:{step}] of {size}",
        )
        for size, start, end, step, taken in (
            (3, -5, -9, -1, 1),
            (3, -5, -9, -2, 1),
            (3, -5, 1, -1, 0),
            (0, -5, -9, -1, 0),
            (3, 9, -9, -2, 2),
            ("S", -1, -(2**63), -1, "S"),
            ("S", 2**63 - 1, -(2**63), -2, "((S + 1) // 2)"),
        )
    ),
    pytest.param(
        "m (float[S, 5] x) => (y) { n = Shape <start = 0, end = 1> (x) m = Neg (n) "
        "  y = Slice (x, m, far) }",
        "y",
        ("S", 5),
        id="the last rows, as many as there are",
    ),
    pytest.param(
        "m (float[S, 5] x) => (y) { n = Shape <end = 1> (x) k = Add (n, seven) "
        "q = Div (k, two) y = ConstantOfShape (q) }",
        "y",
        ("((S + 1) // 2) + 3",),
        id="sums and floor division of sizes",
    ),
    pytest.param(
        "m (float[S, 5] x) => (y) { n = Shape <end = 1> (x) s = Squeeze (n) "
        "y = Range (nought, s, step) }",
        "y",
        ("((S + 1) // 2)",),
        id="a Range with a step",
    ),
    pytest.param(
        "m (float[B, 2] x, float[1, 2] z) => (y) { y = Add (x, z) }",
        "y",
        ("B", 2),
        id="a size of 1 is stretched to a name",
    ),
    pytest.param(
        "m (float[B, K] x, float[K, 7] w) => (y) { h = MatMul (x, w) y = Relu (h) }",
        "y",
        ("B", 7),
        id="a product of matrices",
    ),
    pytest.param(
        "m (float[B, 2, S, 7] past, float[B, 2, L, 7] new, int64[B] at) => (y) "
        "{ y = TensorScatter (past, new, at) }",
        "y",
        ("B", 2, "S", 7),
        id="present has the shape and the names of past",
    ),
    pytest.param(
        "m (float[B, L, 24] q, float[B, L, 12] k, float[B, L, 12] v, float[B, 2, P, 6] pk, "
        "float[B, 2, P, 6] pv) => (y) "
        "{ o, y, z = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v, , pk, pv) }",
        "y",
        ("B", 2, "L + P", 6),
        id="present of Attention is past and key one after another",
    ),
    pytest.param(
        "m (float[B, L, 24] q, float[B, L, 12] k, float[B, L, 12] v, float[B, 2, P, 6] pk, "
        "float[B, 2, P, 6] pv, int32[B] n, float[B, T] mask) => (y) "
        "{ s = Shape <start = 1> (mask) t = Cast <to = 6> (s) "
        "o, y, z = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> "
        "(q, k, v, pk, pv, n, t) }",
        "y",
        ("B", 2, "Max(P, T)", 6),
        id="present of GroupQueryAttention is past or longer",
    ),
    pytest.param(
        "m (float[B, L, 24] q, float[B, L, 24] k, float[B, L, 24] v, float[B, 4, P, 6] pk, "
        "float[B, 4, P, 6] pv) => (y) { o, y, z = com.microsoft.MultiHeadAttention <num_heads = 4> "
        "(q, k, v, , , , pk, pv) }",
        "y",
        ("B", 4, "L + P", 6),
        id="present of MultiHeadAttention is past and key",
    ),
    pytest.param(
        "m (float[B, L, 24] q, float[B, L, 24] k, float[B, L, 24] v, float[B, 4, S, 6] pk, "
        "float[B, 4, S, 6] pv, int32[1] p) => (y) { o, y, z = com.microsoft.MultiHeadAttention "
        "<num_heads = 4> (q, k, v, , , , pk, pv, p) }",
        "y",
        ("B", 4, "S", 6),
        id="present of MultiHeadAttention in a shared buffer is as long as past",
    ),
    pytest.param(
        "m (float[B, L, 24] x, float[24] g) => (y) "
        "{ i, j, k, y = com.microsoft.SkipSimplifiedLayerNormalization (x, x, g) }",
        "y",
        ("B", "L", 24),
        id="the sum of a SkipSimplifiedLayerNormalization",
    ),
    pytest.param(
        "m (float[B, L, 24] x, float[24] g) => (y) "
        "{ i, y = SimplifiedLayerNormalization <axis = -1> (x, g) }",
        "y",
        ("B", "L", 1),
        id="SimplifiedLayerNormalization in the default domain",
    ),
    pytest.param(
        "m (float[B, L, 32] x, uint8[7, 1, 16] w, float[7] s) => (y) "
        "{ y = com.microsoft.MatMulNBits <K = 32, N = 7, block_size = 32> (x, w, s) }",
        "y",
        ("B", "L", 7),
        id="MatMulNBits has its sizes in attributes",
    ),
    pytest.param(
        "m (float[B, 5, L] x, float[B, 5, 7] w) => (y) "
        "{ y = com.microsoft.FusedMatMul <transA = 1> (x, w) }",
        "y",
        ("B", "L", 7),
        id="FusedMatMul transposes first",
    ),
    pytest.param(
        "m (float[L, B, 5] x, float[B, 5, 7] w) => (y) "
        "{ y = com.microsoft.FusedMatMul <transBatchA = 1> (x, w) }",
        "y",
        ("B", "L", 7),
        id="FusedMatMul moves the first axis before the last",
    ),
    pytest.param(
        "m (float[B, 6, L, 5] x, float[7, 3, 3, 3] w, float[7] k, float[B, 7, M, 3] z) => (y) { y ="
        ' com.microsoft.FusedConv <activation = "Relu", group = 2, pads = [1, 0, 1, 0]>'
        " (x, w, k, z) }",
        "y",
        ("B", 7, "L", 3),
        id="FusedConv slides a window, and adds what has the same shape",
    ),
    pytest.param(
        "m (float[B, 14] x) => (y) { y = com.microsoft.BiasSplitGelu (x, bias) }",
        "y",
        ("B", 7),
        id="BiasSplitGelu halves",
    ),
    pytest.param(
        "m (float[B, 6] x) => (y) { i, y = my.Halves <axis = 1> (x) }",
        "y",
        ("B", 3),
        id="a function is inferred with the attributes of its call",
    ),
    pytest.param(
        "m (float[6, B] x, float[8, B] z) => (y) "
        "{ i, j = my.Halves <axis = 0> (x) k, y = my.Halves <axis = 0> (z) }",
        "y",
        (4, "B"),
        id="each call of a function has its own shapes",
    ),
    pytest.param(
        "m (bool c, float[B, 5] x) => (y) { y = If (c) <"
        "then_branch = t () => (float[M, N] p) { p = Relu (x) }, "
        "else_branch = e () => (float[M, N] q) { q = Neg (x) }> }",
        "y",
        ("B", 5),
        id="branches that agree",
    ),
    pytest.param(
        "m (float[B, 5] x, float[B, 7] z) => (y) { y = If (yes) <"
        "then_branch = t () => (float[M, N] p) { p = Relu (x) }, "
        "else_branch = e () => (float[M, N] q) { q = Neg (z) }> }",
        "y",
        ("B", 5),
        id="a constant condition leaves one branch",
    ),
    pytest.param(
        "m (float[B, 5] x) => (y, z) { n = Shape <end = 1> (x) s = Squeeze (n) "
        "y, z = Loop (s, yes, x) <body = b (int64 i, bool go, float[M, N] h) "
        "=> (bool on, float[M, N] out, float[M, N] row) "
        "{ on = Identity (go) out = Relu (h) row = Neg (h) }> }",
        "z",
        ("B", "B", 5),
        id="a Loop stacks one row per iteration",
    ),
    pytest.param(
        "m (float[5, 7] h, float[B, T, 7] x) => (y, z) "
        "{ y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], "
        "body = b "
        "(float[M, N] s, float[M, N] row) => (float[M, N] t, float[M, N] out) "
        "{ t = Identity (s) out = Relu (row) }> (h, x) }",
        "z",
        ("B", "T", 7),
        id="a Scan has as many rows as its input",
    ),
]

CONSTANTS = """
    <int64[1] a = {0}, int64[1] b = {2}, int64[2] tail = {3, 7}, int64[2] rest = {-1, 3},
     int64[1] three = {3}, int64[1] seven = {7}, int64[1] far = {9223372036854775807},
     int64[1] two = {2}, int64 nought = {0},
     int64 step = {2}, bool yes = {1}, float[14] bias = {0,0,0,0,0,0,0,0,0,0,0,0,0,0}>
"""


def with_constants(text: str) -> str:
    """Put the constants that cases name behind the signature of a graph."""
    if ") <" in text.partition("{ ")[0]:
        return text
    head, brace, body = text.partition("{")
    return f"{head}{CONSTANTS}{brace}{body}"


@pytest.mark.long
@each(("text", "value", "shape"), KNOWN)
def test_a_shape_follows(text: str, value: str, shape: tuple[int | str, ...]) -> None:
    more = FUNCTION if "my." in text else ""
    found = infer_model(model(with_constants(text), more=more))
    assert shapes(found)[value] == shape
    assert found.report.conflicts == ()


@each(("text", "value", "shape"), KNOWN)
def test_an_inferred_model_infers_to_itself(
    text: str, value: str, shape: tuple[int | str, ...]
) -> None:
    more = FUNCTION if "my." in text else ""
    graph = model(with_constants(text), more=more)
    first = infer_model(graph)
    first.annotate()
    again = infer_model(ir.from_proto(ir.to_proto(graph)))
    assert again.report.conflicts == ()
    assert again.report.known_before == again.report.known_after == first.report.known_after


HELD = [
    pytest.param(
        "m (float[2, N] a, float[2, N] b) => (y) { s = SequenceConstruct (a, b) "
        "y = SequenceAt (s, nought) }",
        (2, "N"),
        id="an element of a sequence of tensors of one shape",
    ),
    pytest.param(
        "m (float[2, N] a, float[3, N] b) => (y) { s = SequenceConstruct (a, b) "
        "y = SequenceAt (s, nought) }",
        (None, "N"),
        id="an element of a sequence whose tensors differ",
    ),
    pytest.param(
        "m (float[6, N] a) => (y) { o = Optional (a) y = OptionalGetElement (o) }",
        (6, "N"),
        id="what an optional holds",
    ),
    pytest.param(
        "m (bool c, seq(float[6, N]) a) => (y) { y = If (c) <then_branch = t () => "
        "(seq(float[A, B]) p) { p = Identity (a) }, else_branch = e () => (seq(float[A, B]) q) "
        "{ q = Identity (a) }> }",
        (6, "N"),
        id="the elements of a sequence out of branches",
    ),
]


@each(("text", "shape"), HELD)
def test_what_sequences_and_optionals_hold_has_a_shape(
    text: str, shape: tuple[int | str | None, ...]
) -> None:
    graph = model(with_constants(text))
    found = infer_model(graph)
    assert shapes(found)["y"] == shape
    found.annotate()
    written = innermost(ir.to_proto(graph).graph.output[0].type)
    assert written is not None
    dims = [dim.dim_value or dim.dim_param or None for dim in written.shape.dim]
    assert tuple(dims) == shape


@each(
    ("text", "message"),
    [
        pytest.param(
            f"m (float[{2**63 - 1}] a, float[1] b) => (y) {{ y = Concat <axis = 0> (a, b) }}",
            f"`y` is ({2**63}): no axis can have {2**63} elements",
            id="a sum beyond 64 bits",
        ),
        pytest.param(
            f"m (float[{2**62}, 3] a) => (y) {{ y = Flatten <axis = 2> (a) }}",
            f"`y` is ({3 * 2**62}, 1): no axis can have {3 * 2**62} elements",
            id="a product beyond 64 bits",
        ),
        pytest.param(
            "m (float[S, 3] a) => (y) <int64[4] p = {0, 0, 0, -7}> { y = Pad (a, p) }",
            "`y` is (S, -4): no axis can have -4 elements",
            id="cropped by more than there is",
        ),
        pytest.param(
            "m (float[S] a) => (y) { y = SequenceAt (a, a) }",
            "onnx's inference refuses `SequenceAt`: input_sequence typestr: S",
            id="no sequence",
        ),
        pytest.param(
            "m (float16[S] a) => (y) { y = Attention (a, a, a) }",
            "onnx's inference refuses `Attention`: ",
            id="operands of one axis",
        ),
    ],
)
def test_what_no_runtime_can_make_is_a_conflict(text: str, message: str) -> None:
    (conflict,) = infer_model(model(text)).report.conflicts
    assert conflict.message.startswith(message)


LOST = [
    pytest.param(
        "m (float[B] x) => (y, z) { y = my.Odd (x) z = Relu (y) }",
        "z",
        "y",
        "unknown-operator",
        "`my::Odd` is unknown",
        id="behind an operator that nobody knows",
    ),
    pytest.param(
        "m (float[B, 3] x) => (y) { n = NonZero (x) y = Transpose (n) }",
        "y",
        "n",
        "data-dependent",
        "it counts nonzero elements of `x`",
        id="behind a count of elements",
    ),
    pytest.param(
        "m (float[B, 3] x, int64[1] k) => (y) { s = Slice (x, a, k) y = Relu (s) }",
        "y",
        "s",
        "data-dependent",
        "it depends on the elements of `k`",
        id="behind a slice up to an input",
    ),
    pytest.param(
        "m (float[B, 3] x, int64[M] s) => (y) { y = Reshape (x, s) }",
        "y",
        "y",
        "unknown-rank",
        "the number of elements of `s` is unknown",
        id="a rank that is the length of an input",
    ),
    pytest.param(
        "m (float[] x, float[A] p, float[B] q) => (y) { y = Add (p, q) }",
        "y",
        "y",
        "ambiguous-broadcast",
        "`A` and `B` are broadcast, and either may be 1",
        id="two names that are broadcast",
    ),
    pytest.param(
        "m (float[?, 3] x) => (y) { y = Relu (x) }",
        "y",
        "x",
        "undeclared",
        "the input names no size for axis 0",
        id="an input without a name for its size",
    ),
    pytest.param(
        "m (bool c, float[B, 5] x, float[B, 7] z) => (y) { y = If (c) <"
        "then_branch = t () => (float[M, N] p) { p = Relu (x) }, "
        "else_branch = e () => (float[M, N] q) { q = Neg (z) }> }",
        "y",
        "y",
        "branches-differ",
        "the branches give `5` and `7`",
        id="branches that differ",
    ),
    pytest.param(
        "m (float[B, 5] x) => (y) { y = Loop (step, yes, x) <body = b (int64 i, bool go, "
        "float[M, N] h) => (bool on, float[M, N] out) "
        "{ on = Identity (go) out = Concat <axis = 0> (h, x) }> }",
        "y",
        "h",
        "loop",
        "an iteration changes its axis 0",
        id="a state that grows in a Loop",
    ),
    pytest.param(
        "m (float[B, 5] x, bool c) => (y, z) { y, z = Loop (step, c, x) <body = b (int64 i, "
        "bool go, float[M, N] h) => (bool on, float[M, N] out, float[M, N] row) "
        "{ on = Not (go) out = Relu (h) row = Neg (h) }> }",
        "z",
        "z",
        "data-dependent",
        "the number of iterations is not constant",
        id="a Loop that its condition may end",
    ),
]


@each(("text", "value", "first", "code", "why"), LOST)
def test_an_unknown_names_the_first_value_that_lost_it(
    text: str, value: str, first: str, code: str, why: str
) -> None:
    found = infer_model(model(with_constants(text))).report
    unknown = {u.location.value: u.lost for u in found.unknown}
    assert (unknown[value].location.value, unknown[value].code) == (first, code)
    assert unknown[value].why == why
    assert found.conflicts == ()


CONFLICTS = [
    pytest.param(
        "m (float[B, 3] x) => (float[B, 5] z) { y = Relu (x) z = Neg (y) }",
        "shape",
        "z",
        ("B", 5),
        ("B", 3),
        id="an output of another size",
    ),
    pytest.param(
        "m (float[B, 3] x) => (float[B, 3, 1] z) { z = Neg (x) }",
        "shape",
        "z",
        ("B", 3, 1),
        ("B", 3),
        id="an output of another rank",
    ),
    pytest.param(
        "m (float[B, 3] x) => (int64[B, 3] z) { z = Neg (x) }",
        "type",
        "z",
        "tensor(int64)",
        "tensor(float)",
        id="an output of another type",
    ),
    pytest.param(
        "m (float[P] x) => (float[P] z) { z = Concat <axis = 0> (x, bias) }",
        "shape",
        "z",
        ("P",),
        ("P + 14",),
        id="a name that cannot be its own sum",
    ),
    pytest.param(
        "m (float[2, 3] x, float[5, 7] w) => (float[2, 7] y) { y = MatMul (x, w) }",
        "operand-shape",
        "w",
        (5, 7),
        (3, 7),
        id="matrices that do not fit",
    ),
    pytest.param(
        "m (float[2, 3] x, float[2, 5] z) => (y) { y = Add (x, z) }",
        "operand-shape",
        "z",
        (2, 5),
        (2, 3),
        id="sizes that cannot be broadcast",
    ),
    pytest.param(
        "m (float[2, 3, 5, 7] past, float[2, 3, 6, 7] new) => (float[2, 3, 5, 7] y) "
        "{ y = TensorScatter (past, new) }",
        "sequence-too-long",
        "new",
        (2, 3, 6, 7),
        (2, 3, 5, 7),
        id="a sequence longer than the cache",
    ),
    pytest.param(
        "m (float[2, 3, S, 7] past, float[2, 3, T, 7] more) => (y) "
        "{ new = Concat <axis = 2> (past, more, more) s = Concat <axis = 2> (new, one) "
        "y = TensorScatter (past, s) }",
        "sequence-too-long",
        "s",
        (2, 3, "2 * T + S + 1", 7),
        (2, 3, "S", 7),
        id="a sequence that is longer whatever its name stands for",
    ),
    pytest.param(
        "m (float[2, 3, 5, 7] past, float[2, 4, 1, 7] new) => (y) "
        "{ y = TensorScatter (past, new) }",
        "operand-shape",
        "new",
        (2, 4, 1, 7),
        (2, 3, 1, 7),
        id="heads of the update that are not those of the cache",
    ),
    pytest.param(
        "m (float[2, 3, 5, 7] past, float[2, 3, 1, 7] new, int64[3] at) => (y) "
        "{ y = TensorScatter (past, new, at) }",
        "operand-shape",
        "at",
        (3,),
        (2,),
        id="starts for another batch",
    ),
    pytest.param(
        "m (float[2, 3, 5] past, float[2, 3, 5] new) => (y) "
        "{ y = TensorScatter <axis = 0> (past, new) }",
        "bad-axis",
        "past",
        "`axis` 0",
        "`axis` of 1 or more",
        id="a cache along the batch",
    ),
]


@each(("text", "code", "value", "declared", "inferred"), CONFLICTS)
def test_a_conflict_has_both_sides(
    text: str, code: str, value: str, declared: object, inferred: object
) -> None:
    text = with_constants(text).replace("bool yes", "float[2, 3, 1, 7] one = {%s}, bool yes")
    text = text.replace("%s", ", ".join(["0"] * 42))
    (conflict, *rest) = infer_model(model(text)).report.conflicts
    assert (conflict.code, conflict.location.value) == (code, value)
    assert (conflict.declared, conflict.inferred) == (declared, inferred)
    assert not conflict.message.endswith(".")
    assert rest == []


@pytest.mark.parametrize(
    ("inputs", "inner", "declared", "inferred"),
    [
        pytest.param("float[4] w", "float[3] w", (4,), (3,), id="a default of another shape"),
        pytest.param("int64[3] w", "float[3] w", "int64", "float32", id="a default, another type"),
        pytest.param("", "float[4] w, float[3] w", (4,), (3,), id="value_info of another shape"),
    ],
)
def test_a_constant_that_is_declared_otherwise_is_a_conflict(
    inputs: str, inner: str, declared: object, inferred: object
) -> None:
    head = ", ".join(part for part in ("float[B, 3] x", inputs) if part)
    text = f"m ({head}) => (y, z) <{inner} = {{1, 2, 3}}> {{ y = Relu (w) z = Relu (x) }}"
    found = infer_model(model(text))
    (conflict,) = found.report.conflicts
    assert (conflict.code, conflict.location.value) == ("initializer", "w")
    assert (conflict.declared, conflict.inferred) == (declared, inferred)
    assert "is declared as" in conflict.message
    assert shapes(found)["z"] == ("B", 3)


def test_the_chain_leads_from_the_input_to_the_conflict() -> None:
    text = "m (float[B, 3] x) => (float[B, 5] z) { [first] y = Relu (x) [second] z = Neg (y) }"
    (conflict,) = infer_model(model(text)).report.conflicts
    assert conflict.chain == (
        "`x` (B, 3)",
        "Relu `first` gives `y` (B, 3)",
        "Neg `second` gives `z` (B, 3)",
    )


@pytest.mark.parametrize(
    ("text", "opset", "wanted"),
    [
        pytest.param(
            "m (float[2, 5, 7] past, float[2, 1, 7] new) => (float[2, 5, 7] y) "
            "{ y = TensorScatter (past, new) }",
            18,
            "opset 24",
            id="TensorScatter below its opset",
        ),
        pytest.param(
            "m (float[2, 3, 1, 7] q, float[2, 3, 5, 7] k, int64[2] n) => (y) "
            "{ y = Attention (q, k, k, , , , n) }",
            23,
            "opset 24",
            id="an input that a later opset added",
        ),
        pytest.param(
            "m (float[2, 3] x, int64[1, 3] i) => (y) { y = Scatter (x, i, x) }",
            18,
            "opset 9",
            id="an operator that is gone",
        ),
    ],
)
def test_a_wrong_declared_opset_is_a_conflict(text: str, opset: int, wanted: str) -> None:
    (conflict,) = infer_model(model(text, opset)).report.conflicts
    assert (conflict.code, conflict.declared) == ("wrong-opset", f"opset {opset}")
    assert conflict.inferred == wanted


def test_present_of_a_wrong_opset_is_known_all_the_same() -> None:
    text = (
        "m (float[B, 5, 7] past, float[B, 1, 7] new) => (y) "
        "{ z = TensorScatter (past, new) y = Relu (z) }"
    )
    assert shapes(infer_model(model(text, 18)))["y"] == ("B", 5, 7)


def test_a_declared_shape_carries_on_behind_an_unknown_operator() -> None:
    text = "m (float[B] x) => (z) <float[B, 3] y> { y = my.Odd (x) z = Relu (y) }"
    found = infer_model(model(text))
    assert shapes(found)["z"] == ("B", 3)
    assert found.report.unknown == ()


def test_a_name_that_no_input_declares_is_not_known() -> None:
    text = "m (float[B] x) => (z) <float[B, Q] y> { y = my.Odd (x) z = Relu (y) }"
    report = infer_model(model(text)).report
    assert [u.location.value for u in report.unknown] == ["y", "z"]


def test_names_invented_by_onnx_say_nothing() -> None:
    text = "m (float[B] x) => (z) <float[unk__0] y> { y = my.Odd (x) z = Concat <axis=0> (y, x) }"
    found = infer_model(model(text))
    assert shapes(found)["y"] == (None,)
    assert found.report.equalities == ()


def test_names_of_one_size_are_reported() -> None:
    text = (
        "m (float[B, K] x, float[N, 7] w) => (float[B, M] z) "
        "{ y = MatMul (x, w) z = Concat <axis = 1> (y, y) }"
    )
    report = infer_model(model(text)).report
    assert [(e.name, e.equals) for e in report.equalities] == [("K", "N"), ("M", "14")]
    assert report.conflicts == ()


def test_what_one_branch_declares_is_no_equality_of_the_whole() -> None:
    found = infer_model(
        model(
            "m (bool c, float[B, N] x) => (y) { y = If (c) <"
            "then_branch = t () => (float[B, N] p) { p = Relu (x) }, "
            "else_branch = e () => (float[B, N] q) {"
            "  q = Constant <value: tensor = float[0, 1] {}> () }> }"
        )
    )
    assert found.report.equalities == ()
    assert found.report.conflicts == ()


def test_an_equality_holds_for_what_comes_later() -> None:
    text = (
        "m (float[B, K] x, float[N, 7] w, float[K] p, float[N] q) => (z) "
        "{ y = MatMul (x, w) z = Add (p, q) }"
    )
    assert shapes(infer_model(model(text)))["z"] == ("K",)


def test_an_equality_of_a_branch_holds_nowhere_else() -> None:
    text = (
        "m (bool c, float[5, K] x, float[N, 5] w, float[K] p, float[N] q) => (z) "
        "{ y = If (c) <then_branch = t () => (float[U, V] r) { r = MatMul (x, w) }, "
        "else_branch = e () => (float[U, V] s) { s = Transpose (w) }> z = Add (p, q) }"
    )
    found = infer_model(model(text))
    assert shapes(found)["z"] == (None,)


def test_a_size_that_must_not_be_0_is_said() -> None:
    text = (
        "m (float[B, 6] x, float[L, 3] z) => (y) "
        "{ n = Shape <end = 1> (z) s = Concat <axis = 0> (a, n, m) y = Reshape (x, s) }"
    )
    constants = "<int64[1] a = {-1}, int64[1] m = {2}>"
    head, _, body = text.partition("{")
    found = infer_model(model(f"{head}{constants}{{{body}"))
    assert shapes(found)["y"] == ("((3 * B) // L)", "L", 2)
    assert any("`L` is taken to be at least 1" in note for note in found.report.notes)
    (size,) = found.run.knowledge.assumed
    granted = Knowledge(may_be_empty=frozenset({size}))
    careful = infer_model(model(f"{head}{constants}{{{body}"), granted=granted)
    assert shapes(careful)["y"] == (None, None, 2)
    assert not careful.run.knowledge.assumed


@pytest.mark.parametrize(
    ("dims", "conflicts", "shape"),
    [
        pytest.param({"B": 2, "P": 3, "L": 4}, 0, (2, 7), id="all names"),
        pytest.param({"P": 3}, 0, ("B", "L + 3"), id="one name"),
        pytest.param({"B": 5}, 1, (5, "L + P"), id="a value that contradicts a fixed size"),
    ],
)
def test_dims_bind_everywhere(
    dims: dict[str, int], conflicts: int, shape: tuple[int | str, ...]
) -> None:
    text = (
        "m (float[B, P] x, float[B, L] z, float[B, T] w) => (float[B, P + L] y, float[2, T] v) "
        "{ y = Concat <axis = 1> (x, z) v = Relu (w) }"
    ).replace("P + L", "Q")
    found = infer_model(model(text), dims)
    assert shapes(found)["y"] == shape
    assert len(found.report.conflicts) == conflicts


def test_a_broken_model_is_inferred_as_far_as_it_goes() -> None:
    text = "m (float[B] x) => (z) { y = Relu (nobody) z = Relu (x) }"
    found = infer_model(model(text))
    assert shapes(found)["z"] == ("B",)
    assert [u.location.value for u in found.report.unknown] == ["y"]


def test_functions_in_a_circle_end() -> None:
    function = """
        <domain: "my", opset_import: ["": 24, "my": 1]>
        Again (a) => (b) { b = my.Again (a) }
    """
    report = infer_model(model("m (float[B] x) => (y) { y = my.Again (x) }", more=function)).report
    (unknown,) = report.unknown
    assert (unknown.lost.code, unknown.lost.why) == (
        "recursive-function",
        "`my::Again` calls itself",
    )
    assert any("onnx's shape inference failed" in note for note in report.notes)


def _called(text: str) -> tuple[Inference, int]:
    """Return what is inferred of a model, and through how many bodies of functions it goes."""
    with mock.patch.object(ir.Graph, "clone", autospec=True, side_effect=ir.Graph.clone) as clone:
        found = infer_model(model(text, more=FUNCTION + _MORE_FUNCTIONS))
    return found, clone.call_count


_MORE_FUNCTIONS = """
<domain: "my", opset_import: ["": 24]>
Places (x) => (y) { y = NonZero (x) }
<domain: "my", opset_import: ["": 24]>
To (x, s) => (y) { y = Reshape (x, s) }
<domain: "my", opset_import: ["": 24]>
Same (x, z) => (y) { y = Add (x, z) }
<domain: "my", opset_import: ["": 24]>
Wrong (x) => (y) { n = MatMul (x, x) y = Relu (n) }
"""


@each(
    ("text", "bodies", "y", "z"),
    [
        pytest.param(
            "m (float[6, 5] a) => (y, z) "
            "{ y, i = my.Halves <axis = 0> (a) b = Neg (a) z, j = my.Halves <axis = 0> (b) }",
            1, (3, 5), (3, 5),
            id="alike",
        ),
        pytest.param(
            "m (float[6, 8] a) => (y, z) "
            "{ y, i = my.Halves <axis = 0> (a) z, j = my.Halves <axis = 1> (a) }",
            2, (3, 8), (6, 4),
            id="another attribute",
        ),
        pytest.param(
            "m (float[6] a, float[6] b) => (y, z) { y = my.Places (a) z = my.Places (b) }",
            2, (1, None), (1, None),
            id="sizes of their own",
        ),
        pytest.param(
            "m (float[6] a) => (y, z) <int64[2] s = {2, 3}, int64[2] t = {3, 2}> "
            "{ y = my.To (a, s) z = my.To (a, t) }",
            2, (2, 3), (3, 2),
            id="other integers",
        ),
        pytest.param(
            "m (float[N] a, float[M] b) => (y, z) { y = my.Same (a, b) z = my.Same (a, b) }",
            2, (None,), (None,),
            id="a size that cannot be told is one of each call",
        ),
        pytest.param(
            "m (float[2, 3] a) => (y, z) { y = my.Wrong (a) z = my.Wrong (a) }",
            2, (2, 3), (2, 3),
            id="each call has its own conflict",
        ),
    ],
)  # fmt: skip
def test_a_body_is_gone_through_once_for_calls_that_are_alike(
    text: str,
    bodies: int,
    y: tuple[int | None, ...],
    z: tuple[int | None, ...],
) -> None:
    found, gone = _called(text)
    assert (gone, shapes(found)["y"], shapes(found)["z"]) == (bodies, y, z)
    assert len(found.report.conflicts) == 2 * ("Wrong" in text)
    one, other = (v.name for v in found.run.model.graph.outputs)
    known = {v.name: found.run.knowledge.shapes.get(v) for v in found.run.values}
    if None in y:
        assert known[one] != known[other]


@pytest.mark.long
def test_functions_that_call_each_other_twice_are_gone_through_once_each() -> None:
    proto = HOSTILE["functions that expand to 2^16 calls"]()
    with mock.patch.object(ir.Graph, "clone", autospec=True, side_effect=ir.Graph.clone) as clone:
        found = infer_model(ir.from_proto(proto))
    assert (clone.call_count, shapes(found)["y"]) == (16, (2,))


def test_a_size_that_is_broadcast_with_an_unknown_one_is_lost_by_the_same_cause() -> None:
    text = "m (float[B, 3] x, int64[2] k) => (z) { z = Expand (x, k) }"
    (unknown,) = infer_model(model(text)).report.unknown
    assert unknown.lost.why == "it depends on the elements of `k`"
