"""Shape-15 of some dimensions, for older opsets."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_kvtool as kv
from tests.rewrite.lowering.single import check, one_node

_X = np.zeros((2, 3, 5, 7), np.float32)

PARTS = {
    "from the second on": ({"start": 1}, [3, 5, 7]),
    "up to the third": ({"end": 2}, [2, 3]),
    "one in between": ({"start": 2, "end": 3}, [5]),
    "counted from the end": ({"start": -3, "end": -1}, [3, 5]),
    "past both ends": ({"start": -9, "end": 9}, [2, 3, 5, 7]),
    "none": ({"start": 3, "end": 1}, []),
}


@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize(("attributes", "expected"), PARTS.values(), ids=PARTS)
def test_the_sizes_of_some_dimensions(
    attributes: dict[str, int], expected: list[int], symbolic: bool
) -> None:
    dims = {"data": ["a", "b", "c", "d"]} if symbolic else None
    model = one_node("Shape", {"data": _X}, [np.int64], opset=15, dims=dims, **attributes)
    for target in (11, 14):
        check(model, {"data": _X}, target, [np.array(expected, np.int64)])


def test_the_sizes_of_an_unknown_rank() -> None:
    model = one_node("Shape", {"data": _X}, [np.int64], opset=15, dims={"data": None}, start=-2)
    check(model, {"data": _X}, 13, [np.array([5, 7])])


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 0, 5), ()], ids=str)
def test_the_number_of_elements(shape: tuple[int, ...]) -> None:
    data = np.zeros(shape, np.float32)
    names = [f"d{axis}" for axis in range(data.ndim)]
    model = one_node("Size", {"data": data}, [np.int64], opset=21, dims={"data": names})
    result, report = kv.lower(model, only=["Size"])
    assert report.verification.status == "equal"
    made = ["Shape", "ReduceProd"] if shape else ["ReduceProd"]
    assert [node.op_type for node in result.graph][-len(made) :] == made
