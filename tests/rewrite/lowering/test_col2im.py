"""Col2Im-18, for older opsets."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part, search
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(41)


def _blocks(
    image: list[int],
    block: list[int],
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> list[int]:
    rank = len(image)
    s, d, p = strides or [1] * rank, dilations or [1] * rank, pads or [0] * 2 * rank
    reach = [(block[i] - 1) * d[i] + 1 for i in range(rank)]
    return [(image[i] + p[i] + p[rank + i] - reach[i]) // s[i] + 1 for i in range(rank)]


def _by_hand(x: np.ndarray, image: list[int], block: list[int], **given: Any) -> np.ndarray:
    """Return what the text says, element by element."""
    rank, counts = len(image), _blocks(image, block, **given)
    strides = given.get("strides") or [1] * rank
    dilations, pads = given.get("dilations") or [1] * rank, given.get("pads") or [0] * 2 * rank
    x = x.reshape(x.shape[0], -1, *block, *counts)
    y = np.zeros((*x.shape[:2], *image), x.dtype)
    for q in itertools.product(*map(range, block)):
        for number in itertools.product(*map(range, counts)):
            at = [number[i] * strides[i] + q[i] * dilations[i] - pads[i] for i in range(rank)]
            if all(0 <= a < size for a, size in zip(at, image, strict=True)):
                y[(slice(None), slice(None), *at)] += x[(slice(None), slice(None), *q, *number)]
    return y


def _inputs(
    image: list[int], block: list[int], dtype: type = np.float32, **given: Any
) -> dict[str, np.ndarray]:
    size = math.prod(_blocks(image, block, **given))
    data = _RNG.integers(-9, 9, (2, 3 * math.prod(block), size)).astype(dtype)
    return {"input": data, "image_shape": np.array(image), "block_shape": np.array(block)}


_CASES: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {
    "plain": ([5, 7], [2, 3], {}),
    "strides": ([5, 7], [2, 3], {"strides": [3, 2]}),
    "gaps": ([5, 7], [2, 3], {"dilations": [4, 2]}),
    "pads": ([5, 7], [2, 3], {"pads": [1, 0, 0, 2]}),
    "all": ([6, 7], [3, 2], {"pads": [2, 1, 1, 3], "strides": [2, 3], "dilations": [2, 3]}),
    "three axes": ([3, 4, 5], [2, 1, 3], {"strides": [1, 2, 2], "pads": [0, 1, 0, 0, 1, 0]}),
}


@part(3)
@pytest.mark.parametrize("target", [9, 11, 17])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize(("image", "block", "given"), list(_CASES.values()), ids=list(_CASES))
def test_blocks(
    image: list[int], block: list[int], given: Any, constant: bool, target: int
) -> None:
    inputs = _inputs(image, block, **given)
    shapes = ["image_shape", "block_shape"] if constant else []
    model = one_node("Col2Im", inputs, [np.float32], opset=18, constants=shapes, **given)
    check(model, inputs, target, [_by_hand(inputs["input"], image, block, **given)])


@pytest.mark.parametrize("name", ["all", "three axes"])
def test_as_onnxruntime_has_it(name: str) -> None:
    image, block, given = _CASES[name]
    inputs = _inputs(image, block, **given)
    model = one_node("Col2Im", inputs, [np.float32], opset=18, **given)
    found = onnxruntime.Session(model.SerializeToString(), "").run(inputs)["out0"]
    np.testing.assert_array_equal(found, _by_hand(inputs["input"], image, block, **given))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.float16])
def test_other_types(dtype: type) -> None:
    inputs = _inputs([4, 5], [2, 2], dtype)
    model = one_node("Col2Im", inputs, [dtype], opset=18)
    check(model, inputs, 13, [_by_hand(inputs["input"], [4, 5], [2, 2])])


def test_what_is_not_a_number_stays_at_its_place() -> None:
    inputs = _inputs([4, 5], [2, 2], strides=[2, 1])
    inputs["input"][0, 1, 2], inputs["input"][1, 0, 0] = np.nan, np.inf
    model = one_node("Col2Im", inputs, [np.float32], opset=18, strides=[2, 1])
    check(model, inputs, 11, [_by_hand(inputs["input"], [4, 5], [2, 2], strides=[2, 1])])


_line = st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))


@search(25)
@given(lines=st.tuples(_line, _line), pads=st.tuples(*[st.integers(0, 2)] * 4))
def test_any_blocks(lines: Any, pads: tuple[int, ...]) -> None:
    image, block, strides, dilations = (list(part) for part in zip(*lines, strict=True))
    given = {"strides": strides, "dilations": dilations, "pads": list(pads)}
    reach = [(b - 1) * d + 1 for b, d in zip(block, dilations, strict=True)]
    assume(all(image[i] + pads[i] + pads[2 + i] >= reach[i] for i in range(2)))
    inputs = _inputs(image, block, **given)
    model = one_node("Col2Im", inputs, [np.float32], opset=18, **given)
    check(model, inputs, 11, [_by_hand(inputs["input"], image, block, **given)])


def test_tables_of_constant_shapes_are_constants() -> None:
    inputs = _inputs([5, 7], [2, 3])
    shapes = ["image_shape", "block_shape"]
    model = one_node("Col2Im", inputs, [np.float32], opset=18, constants=shapes)
    lowered, _ = lower(ir.from_proto(model), opset=17, verify=False)
    operators = [node.op_type for node in lowered.graph]
    assert operators == ["Reshape", "Transpose", "Reshape", "Pad", *["Gather", "ReduceSum"] * 2]


def test_an_unknown_number_of_axes_is_refused() -> None:
    dims = {"image_shape": None, "block_shape": ["k"]}
    model = one_node("Col2Im", _inputs([5, 7], [2, 3]), [np.float32], opset=18, dims=dims)
    found = refusal(model, 17)
    assert (found.code, found.lowest_opset) == ("unknown-dimension", 18)
