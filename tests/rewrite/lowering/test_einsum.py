"""Einsum at opset 11."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_kvtool.ops.operators import parse
from onnx_kvtool.ops.view import MalformedNode
from tests.grids import each, part
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(31)
_CASES: dict[str, list[tuple[int, ...]]] = {
    "ij->ji": [(2, 3)],
    "ij->i": [(2, 3)],
    "ij->": [(2, 3)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "iij->j": [(3, 3, 5)],
    "...ii->...i": [(2, 3, 5, 5)],
    "ij,jk->ik": [(2, 3), (3, 5)],
    "ij,jk": [(2, 3), (3, 5)],
    "bij,bjk->bik": [(7, 2, 3), (7, 3, 5)],
    "bhid,bhjd->bhij": [(2, 3, 5, 7), (2, 3, 4, 7)],
    "i,j->ij": [(2,), (3,)],
    "i,i->": [(3,), (3,)],
    "ijk,kjl->il": [(2, 3, 5), (5, 3, 7)],
    "abc,cd->dab": [(2, 3, 5), (5, 7)],
    "...ij,...jk->...ik": [(2, 3, 5), (1, 5, 7)],
    "ij,i->j": [(2, 3), (2,)],
    "ij,jk,kl->il": [(2, 3), (3, 5), (5, 7)],
    "ij,k->j": [(2, 3), (5,)],
    "b i , b j -> b i j": [(2, 3), (2, 5)],
    ",ij->ij": [(), (2, 3)],
}


@part(2)
@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize(("equation", "shapes"), list(_CASES.items()), ids=list(_CASES))
def test_equal(equation: str, shapes: list[tuple[int, ...]], symbolic: bool) -> None:
    inputs = {f"x{i}": _RNG.normal(size=s).astype(np.float32) for i, s in enumerate(shapes)}
    dims = {
        name: [f"{name}_{axis}" for axis in range(value.ndim)] for name, value in inputs.items()
    }
    model = one_node(
        "Einsum",
        inputs,
        [np.float32],
        opset=12,
        dims=dims if symbolic else None,
        equation=equation,
    )
    expected = np.einsum(equation.replace(" ", ""), *inputs.values())
    check(model, inputs, 11, [np.asarray(expected, np.float32)], rtol=1e-5)


def test_a_diagonal_does_not_see_what_is_off_it() -> None:
    x = np.array([[1, np.inf], [np.nan, 2]], np.float32)
    model = one_node("Einsum", {"x": x}, [np.float32], opset=12, equation="ii->i")
    check(model, {"x": x}, 11, [np.array([1, 2], np.float32)])


def test_empty_operands() -> None:
    inputs = {"a": np.zeros((2, 0, 3), np.float32), "b": np.zeros((0, 3, 5), np.float32)}
    model = one_node("Einsum", inputs, [np.float32], opset=12, equation="ijk,jkl->il")
    check(model, inputs, 11, [np.zeros((2, 5), np.float32)])


def test_a_scalar_of_unknown_sizes_without_if() -> None:
    inputs = {"a": np.array([2, 3], np.float32), "b": np.array([5, 7], np.float32)}
    dims = {"a": ["n"], "b": ["m"]}
    model = one_node("Einsum", inputs, [np.float32], opset=12, dims=dims, equation="i,i->")
    check(model, inputs, 10, [np.array(31, np.float32)])


def test_an_unknown_rank_is_refused() -> None:
    inputs = {"x": np.zeros((2, 3), np.float32)}
    model = one_node("Einsum", inputs, [np.float32], opset=12, dims={"x": None}, equation="ij->ji")
    found = refusal(model, 11)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 12)


@each(
    ("equation", "ranks"),
    [("ij->k", [2]), ("ij->ii", [2]), ("ij,jk->ik", [2]), ("ijk->i", [2]), ("...i->i", [2])],
)
def test_equations_that_mean_nothing(equation: str, ranks: list[int]) -> None:
    with pytest.raises(MalformedNode):
        parse(equation, ranks)
