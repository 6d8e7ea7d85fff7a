"""Bodies and functions are inferred as if each name stood for one value, and in pieces."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.parser
import onnx.shape_inference
import pytest

from benchmarks.growth import SHAPES
from onnx_kvtool.guard import scopes
from onnx_kvtool.guard.fault import Contents
from onnx_kvtool.guard.scopes import infer_past_copied_scopes, infer_with_distinct_names
from onnx_kvtool.guard.weightless import infer_with_data
from onnx_kvtool.model_io.verbatim import every_holder
from tests.fuzz.graphs import draw
from tests.grids import each

_BRANCHES_HEAD = '<ir_version: 10, opset_import: ["": 18, "local": 1]>'

# The target of the Reshape is made of the sizes of `x` or `z`, and called alike in every body.
_OF_X = "t = Shape (x) r = Reshape (w, t)"
_OF_Z = "t = Shape (z) r = Reshape (w, t)"

BRANCHES = [
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w) => (float[A, B] a) {"
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        f"             else_branch = q () => (float[C, D] r) {{ {_OF_Z} }}> }}",
        [[2, 15], [3, 10]],
        id="both branches of an If",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w)"
        "  => (float[A, B] a, float[C, D] b) {"
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        "              else_branch = q () => (float[A, B] x2) { x2 = Identity (x) }>"
        f"  b = If (c) <then_branch = p () => (float[C, D] r) {{ {_OF_Z} }},"
        "              else_branch = q () => (float[C, D] x2) { x2 = Identity (z) }> }",
        [[2, 15], [3, 10]],
        id="one If behind another",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w, int64[2] u) => (float[A, B] a) {"
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        "    else_branch = q () => (float[C, D] r) { t = Identity (u) r = Reshape (w, t) }> }",
        [[2, 15], [None, None]],
        id="a second one of which no elements are known",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w) => (float[A, B] a) {"
        "  a = If (c) <then_branch = p () => (float[A, B] o) {"
        f"    o = If (c) <then_branch = s () => (float[E, F] r) {{ {_OF_X} }},"
        f"                else_branch = i () => (float[E, F] r) {{ {_OF_X} }}> }},"
        "    else_branch = q () => (float[C, D] o) {"
        f"    o = If (c) <then_branch = s () => (float[G, H] r) {{ {_OF_Z} }},"
        f"                else_branch = i () => (float[G, H] r) {{ {_OF_Z} }}> }}> }}",
        [[2, 15], [2, 15], [3, 10], [3, 10]],
        id="an If in each branch of another",
    ),
    pytest.param(
        "g (int64 n, bool c, float[2, 15] x, float[3, 10] z, float[30] w)"
        "  => (float[T, A, B] a, float[U, C, D] b) {"
        "  a = Loop (n, c) <body = p (int64 i, bool k) => (bool m, float[A, B] r)"
        f"    {{ m = Identity (k) {_OF_X} }}>"
        "  b = Loop (n, c) <body = p (int64 i, bool k) => (bool m, float[C, D] r)"
        f"    {{ m = Identity (k) {_OF_Z} }}> }}",
        [[2, 15], [3, 10]],
        id="two loops",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w) => (float[A, B] a) {"
        "  a = local.pick (c, x, z, w) }"
        '<domain: "local", opset_import: ["": 18]> pick (c, x, z, w) => (a) {'
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        f"             else_branch = q () => (float[C, D] r) {{ {_OF_Z} }}> }}",
        None,
        id="branches in a function",
    ),
]


@each(("text", "expected"), BRANCHES)
def test_bodies_that_name_their_values_alike_do_not_mix(
    text: str, expected: list[list[int | None]] | None
) -> None:
    model = onnx.parser.parse_model(_BRANCHES_HEAD + text)
    before = model.SerializeToString(deterministic=True)
    inferred = infer_with_data(model, strict=True)
    assert model.SerializeToString(deterministic=True) == before
    assert [node.output for node in _every(inferred.graph)] == [
        node.output for node in _every(model.graph)
    ]
    if expected is None:  # bodies of functions are inferred, and not written down
        return
    found = [
        [
            dim.dim_value if dim.HasField("dim_value") else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for graph in _bodies(inferred.graph)
        for value in graph.output
        if value.name == "r"
    ]
    assert found == expected


def test_a_name_that_hides_an_outer_one_is_its_own() -> None:
    """onnx's checker refuses it; what is inferred of the outer value must be left alone."""
    model = onnx.parser.parse_model(
        _BRANCHES_HEAD + "g (bool c, float[2] x) => (float[A] a) { t = Relu (x) a = If (c) <"
        "  then_branch = p () => (float[B] t) { t = Identity (x) },"
        "  else_branch = q () => (float[B] e) { e = Relu (t) }> }"
    )
    seen: list[str] = []

    def look(contents: Contents) -> onnx.ModelProto:
        for graph in _bodies(contents.message.graph):
            seen.extend(f"{n.input[0]} -> {n.output[0]}" for n in graph.node)
        result = onnx.ModelProto()
        result.CopyFrom(contents.message)
        return result

    result = infer_with_distinct_names(Contents(model), look)
    assert seen == ["x -> t~0", "t -> e"]
    assert result == model


def _bodies(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    found = []
    for node in graph.node:
        for attribute in sorted(node.attribute, key=lambda a: a.name, reverse=True):
            if attribute.HasField("g"):
                found += [attribute.g, *_bodies(attribute.g)]
    return found


def _every(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [node for one in (graph, *_bodies(graph)) for node in one.node]


_PIECES_HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1, "odd": 1]> '
_LISTS = "int64 zero = {0}, int64[1] first = {0}, int64[1] rest = {-1}, int64[2] flat = {1, -1}"
_IF = (
    "If (c) <then_branch = a () => (float[A, B] t) { %s },"
    " else_branch = b () => (float[C, D] e) { %s }>"
)
_FUNCTION = ' <domain: "my", opset_import: ["": 21, "my": 1]> '

PIECES = [
    pytest.param(
        f"g (float[2, 3, N] x) => (y) <{_LISTS}> {{ s = Shape (x) d = Gather (s, zero)"
        " u = Unsqueeze (d, first) k = Concat <axis = 0> (u, rest) y = Reshape (x, k) }",
        id="elements of a vector",
    ),
    pytest.param(
        f"g (float[2, 3] x, bool c) => (n, y) <{_LISTS}> {{ n = Add (flat, flat) y = "
        + _IF % ("t = Reshape (x, flat)", "e = Reshape (x, flat)")
        + "}",
        id="a constant that a body knows since another node read it",
    ),
    pytest.param(
        "g (float[2, 3] x) => (y) { k = Constant <value_ints = [6]> () y = Reshape (x, k) }",
        id="a Constant",
    ),
    pytest.param(
        "g (float[2, 3] x, float[5] z) => (y, w) { o = odd.Odd (x) y = Add (x, z) w = Relu (z) }",
        id="a contradiction behind an unknown operator",
    ),
    pytest.param(
        f"g (float[2, 3, 5] x) => (y) <{_LISTS}> {{ s = my.last (x) k = Concat <axis = 0> (s, rest)"
        f" y = Reshape (x, k) }} {_FUNCTION} last (a) => (b) {{ b = Shape <start = -1> (a) }}",
        id="elements from a function",
    ),
    pytest.param(
        f"g (float[2, 3] x) => (y, z) {{ y = my.outer (x) z = my.inner (y) }}"
        f"{_FUNCTION} outer (a) => (b) {{ n = NonZero (a) m = Cast <to = 1> (n) b = my.inner (m) }}"
        f"{_FUNCTION} inner (a) => (b) {{ b = Transpose <perm = [1, 0]> (a) }}",
        id="a function that calls a function",
    ),
    pytest.param(
        "g (float[2, N] x, float[M, 3] w) => (float[A, B] y, z, int64[R, C] i, j)"
        " <float[R, 3] p, int64[unk__1] q> { p = Add (x, w) y = Relu (p) z = Relu (y)"
        " i = NonZero (p) h = NonZero (z) j = Transpose (h) q = Shape (i) }",
        id="declared and invented sizes",
    ),
    pytest.param(
        "g (float[2, 3] x, bool c) => (y) { n = NonZero (x) m = Cast <to = 1> (n) z = Relu (m) v = "
        + _IF % ("r = Relu (m) t = Add (r, z)", "e = Identity (x)")
        + " y = Transpose (v) }",
        id="a branch that reads outer values",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[A, B] y) <float[2, C] p> { y = Relu (p) p = Relu (x) }",
        id="nodes that are not sorted",
    ),
]

Infer = Callable[[onnx.ModelProto], onnx.ModelProto]


def _in_pieces(model: onnx.ModelProto, infer: Infer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold what pieces of one and of three nodes tell against what the whole does."""
    whole = _renumbered(infer(model))
    monkeypatch.setattr(scopes, "_MOST_COPIED", -1)
    for size in (1, 3):
        given: list[onnx.ModelProto] = []

        def note(piece: onnx.ModelProto, given: list[onnx.ModelProto] = given) -> onnx.ModelProto:
            given.append(piece)
            return infer(piece)

        monkeypatch.setattr(scopes, "_PIECE", size)
        before = model.SerializeToString(deterministic=True)
        assert _renumbered(infer_past_copied_scopes(Contents(model), note)) == whole
        assert model.SerializeToString(deterministic=True) == before
        assert not any(piece is model for piece in given)


def _renumbered(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give invented names their numbers in the order in which they stand."""
    numbers: dict[str, int] = {}
    for holder in every_holder(model):
        assert isinstance(holder, onnx.GraphProto | onnx.FunctionProto)
        own = (holder.input, holder.output) if isinstance(holder, onnx.GraphProto) else ()
        for info in (info for infos in (*own, holder.value_info) for info in infos):
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param.startswith("unk__"):
                    dim.dim_param = f"unk__{numbers.setdefault(dim.dim_param, len(numbers))}"
    return model


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("text", PIECES)
def test_pieces_tell_what_the_whole_tells(
    text: str, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.parser.parse_model(_PIECES_HEAD + text)

    def infer(given: onnx.ModelProto) -> onnx.ModelProto:
        return onnx.shape_inference.infer_shapes(given, strict_mode=strict, data_prop=True)

    _in_pieces(model, infer, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_pieces_of_random_graphs_tell_what_the_whole_tells(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def infer(given: onnx.ModelProto) -> onnx.ModelProto:
        return onnx.shape_inference.infer_shapes(given, data_prop=True)

    model = draw(seed).model
    _in_pieces(model, infer, monkeypatch)
    del model.graph.value_info[:]
    _in_pieces(model, infer, monkeypatch)


@pytest.mark.long
def test_only_a_model_of_many_calls_is_given_in_pieces() -> None:
    def functions_given(count: int) -> list[int]:
        seen = []

        def note(piece: onnx.ModelProto) -> onnx.ModelProto:
            seen.append(len(piece.functions))
            return onnx.shape_inference.infer_shapes(piece)

        infer_past_copied_scopes(Contents(SHAPES["functions"](count)), note)
        return seen

    assert functions_given(1000) == [1000]
    assert functions_given(2100) == [128] * 16 + [52]


def test_the_error_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[2] x, float[3] z) => (y, w) { y = Add (x, z) v = Relu (x) w = Add (z, v) }"
    model = onnx.parser.parse_model(_PIECES_HEAD + text)
    monkeypatch.setattr(scopes, "_MOST_COPIED", -1)
    monkeypatch.setattr(scopes, "_PIECE", 1)

    def infer(given: onnx.ModelProto) -> onnx.ModelProto:
        return onnx.shape_inference.infer_shapes(given, strict_mode=True)

    with pytest.raises(onnx.shape_inference.InferenceError) as error:
        infer_past_copied_scopes(Contents(model), infer)
    assert str(error.value).count("Incompatible dimensions") == 2
