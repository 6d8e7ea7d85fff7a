"""Sizes that are products: taken apart and put together in several ways."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.verification.shrinking.drawn_weights import skeleton
from onnx_kvtool.verification.shrinking.equal_sizes import Size, factor
from onnx_kvtool.verification.shrinking.shrink import Pair, shrink
from tests.grids import each
from tests.verification.test_shrinking import compared, dims, wide


def numbers(size: Size) -> list[int | None]:
    return [atom.number for atom in size.atoms()]


@each(
    ("one", "other", "expected"),
    [
        pytest.param([12, 8], [6, 16], [6, 2, 8], id="a border inside a size of the other"),
        pytest.param([96], [2, 3, 16], [2, 3, 16], id="one size of three parts"),
        pytest.param([1, 12], [3, 1, 4], [3, 4], id="ones are no parts"),
        pytest.param([35], [5, 7], [5, 7], id="two parts"),
    ],
)
def test_two_products_have_the_parts_of_both(
    one: list[int], other: list[int], expected: list[int]
) -> None:
    whole, left, right = Size(math.prod(one)), [*map(Size, one)], [*map(Size, other)]
    factor([whole], left)
    factor([whole], right)
    assert numbers(whole) == expected
    for sizes in (left, right):
        parts = [atom for size in sizes for atom in size.atoms() if atom.number != 1]
        assert parts == whole.atoms()
    assert not any(atom.is_pinned for atom in whole.atoms())


def test_products_without_common_parts_are_kept() -> None:
    left, right = [Size(6), Size(4)], [Size(8), Size(3)]
    factor(left, right)
    assert all(atom.is_pinned for size in (*left, *right) for atom in size.atoms())


def test_products_of_no_elements_are_kept() -> None:
    left, right = [Size(5), Size(0)], [Size(0), Size(3)]
    factor(left, right)
    assert all(atom.is_pinned for size in (*left, *right) for atom in size.atoms())


def test_what_is_pinned_stays_pinned_in_its_parts() -> None:
    whole, part = Size(24), Size(8)
    part.pin()
    factor([whole], [Size(3), part])
    assert [atom.is_pinned for atom in whole.atoms()] == [False, True]
    other = Size(24)
    other.join(whole)
    assert other.atoms() == whole.atoms()
    other.pin()
    assert all(atom.is_pinned for atom in whole.atoms())


@given(st.lists(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), min_size=1, max_size=4))
def test_a_product_is_always_that_of_its_parts(ways: list[list[int]]) -> None:
    whole = Size(144)
    for way in ways:
        rest = 144 // math.prod(way) if 144 % math.prod(way) == 0 else 0
        factor([whole], [*map(Size, way), Size(rest)])
        assert math.prod(number or 0 for number in numbers(whole)) == 144


def shrunk(body: str, **constants: np.ndarray) -> Pair:
    def built() -> ir.Model:
        source = wide(body)
        for name, array in constants.items():
            tensor = ir.tensor(array, name=name)
            value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
            source.graph.initializers.add(value)
            for node in source.graph:
                for index, used in enumerate(node.inputs):
                    if used is not None and used.name == name:
                        node.replace_input_with(index, value)
        return source

    assert compared(built(), built()).status == "equal"
    return shrink(skeleton(built(), "A"), skeleton(built(), "B"), 0, 1 << 26)


SPLIT = "r = Reshape (x, s) {} f = Reshape (u, t) y = MatMul (f, w)"
HEADS = {"s": np.array([0, 8, 16]), "t": np.array([0, 128])}


@pytest.mark.long
@pytest.mark.parametrize(
    ("between", "constants", "expected"),
    [
        pytest.param("u = Neg (r)", {}, 6, id="heads and what is in them"),
        pytest.param(
            "u = Gather <axis = 2> (r, i)",
            {"i": np.arange(16) ^ 8},
            48,
            id="halves that change places",
        ),
        pytest.param(
            "u = Gather <axis = 1> (r, i)",
            {"i": np.array([0, 1, 2, 3, 4, 5, 7, 6])},
            24,
            id="heads of which two change places stay",
        ),
        pytest.param(
            "u = Add (r, i)",
            {"i": np.array([[1.0], [1], [1], [1], [1], [1], [1], [2]], np.float32)},
            6,
            id="a weight of both models",
        ),
        pytest.param("u = Hardmax (r)", {}, 128, id="an operator without a rule"),
    ],
)
def test_a_product_shrinks_in_the_parts_that_nothing_depends_on(
    between: str, constants: dict[str, np.ndarray], expected: int
) -> None:
    pair = shrunk(SPLIT.format(between), **HEADS, **constants)
    assert dims(pair.a, "w") == dims(pair.b, "w")
    assert dims(pair.a, "w")[0] == expected
