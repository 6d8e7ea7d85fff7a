"""Inference in pieces finds what inference of the whole finds."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.parser
import onnx.shape_inference
import pytest

from benchmarks.growth import SHAPES
from onnx_kvtool.guard import copied_scopes
from onnx_kvtool.guard.copied_scopes import infer_past_copied_scopes
from onnx_kvtool.guard.small_constants import Contents
from onnx_kvtool.model_io.forms import every_holder
from tests.fuzz.graphs import draw

_HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1, "odd": 1]> '
_LISTS = "int64 zero = {0}, int64[1] first = {0}, int64[1] rest = {-1}, int64[2] flat = {1, -1}"
_IF = (
    "If (c) <then_branch = a () => (float[A, B] t) { %s },"
    " else_branch = b () => (float[C, D] e) { %s }>"
)
_FUNCTION = ' <domain: "my", opset_import: ["": 21, "my": 1]> '

CASES = [
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
    monkeypatch.setattr(copied_scopes, "_MOST_COPIED", -1)
    for size in (1, 3):
        given: list[onnx.ModelProto] = []

        def note(piece: onnx.ModelProto, given: list[onnx.ModelProto] = given) -> onnx.ModelProto:
            given.append(piece)
            return infer(piece)

        monkeypatch.setattr(copied_scopes, "_PIECE", size)
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
@pytest.mark.parametrize("text", CASES)
def test_pieces_tell_what_the_whole_tells(
    text: str, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.parser.parse_model(_HEAD + text)

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
    model = onnx.parser.parse_model(_HEAD + text)
    monkeypatch.setattr(copied_scopes, "_MOST_COPIED", -1)
    monkeypatch.setattr(copied_scopes, "_PIECE", 1)

    def infer(given: onnx.ModelProto) -> onnx.ModelProto:
        return onnx.shape_inference.infer_shapes(given, strict_mode=True)

    with pytest.raises(onnx.shape_inference.InferenceError) as error:
        infer_past_copied_scopes(Contents(model), infer)
    assert str(error.value).count("Incompatible dimensions") == 2
