"""Conv and ConvTranspose, held against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels import windows
from onnx_kvtool.runtime.kernels.picture import conv, conv_transpose
from tests.grids import each

Sizes = tuple[int, ...]

CASES: dict[str, tuple[Sizes, Sizes, dict[str, Any]]] = {
    "depthwise, one axis": ((2, 3, 11), (3, 1, 5), {"group": 3}),
    "two maps for each channel": ((2, 3, 11), (6, 1, 5), {"group": 3, "dilations": [2]}),
    "one group": ((2, 3, 7), (5, 3, 2), {"strides": [3]}),
    "groups of several channels": ((2, 6, 7), (4, 3, 2), {"group": 2, "pads": [2, 1]}),
    "kernel of one element": ((2, 3, 7, 5), (5, 3, 1, 1), {}),
    "two axes": (
        (2, 3, 7, 5),
        (5, 3, 3, 2),
        {"pads": [2, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]},
    ),
    "three axes": ((1, 2, 5, 3, 7), (4, 1, 2, 3, 3), {"group": 2, "strides": [1, 2, 3]}),
    "the same size, more behind": ((2, 3, 7), (5, 3, 2), {"auto_pad": "SAME_UPPER"}),
    "the same size, more in front": (
        (2, 3, 7),
        (5, 3, 4),
        {"auto_pad": "SAME_LOWER", "strides": [2]},
    ),
    "padding that is not taken": ((2, 3, 7), (5, 3, 2), {"auto_pad": "VALID", "strides": [2]}),
    "nothing in the batch": ((0, 3, 7), (5, 3, 2), {}),
}


def convolved(*operands: np.ndarray, **attributes: Any) -> np.ndarray:
    given: dict[str, Any] = {"auto_pad": "NOTSET", "group": 1}
    given |= dict.fromkeys(("dilations", "kernel_shape", "pads", "strides"))
    return conv(*operands, **{**given, **attributes})


def drawn(*shapes: Sizes) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def onnxruntime_result(
    op_type: str, arrays: list[np.ndarray], attributes: dict[str, Any]
) -> np.ndarray:
    names = ["x", "w", "b"][: len(arrays)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "conv",
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, array.shape)
            for n, array in zip(names, arrays, strict=True)
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, dict(zip(names, arrays, strict=True)))
    return np.asarray(result)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_agrees(name: str, has_bias: bool) -> None:
    x_shape, w_shape, attributes = CASES[name]
    arrays = drawn(x_shape, w_shape, w_shape[:1])[: 2 + has_bias]
    expected = onnxruntime_result("Conv", arrays, attributes)
    found = convolved(*arrays, **attributes)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


TRANSPOSED: dict[str, tuple[Sizes, Sizes, dict[str, Any]]] = {
    "depthwise": ((2, 3, 11), (3, 1, 5), {"group": 3, "strides": [2]}),
    "groups of several channels": (
        (2, 6, 7), (6, 5, 3), {"group": 2, "pads": [2, 1], "strides": [3], "dilations": [2]},
    ),
    "two axes": (
        (2, 3, 7, 5), (3, 5, 3, 2),
        {"pads": [2, 0, 1, 1], "strides": [2, 3], "output_padding": [1, 2]},
    ),
    "three axes": ((1, 2, 5, 3, 7), (2, 4, 2, 3, 3), {"strides": [1, 2, 3]}),
    "as many times the size, less in front": (
        (2, 3, 7), (3, 5, 5), {"auto_pad": "SAME_UPPER", "strides": [2]},
    ),
    "as many times the size, less behind": (
        (2, 3, 7), (3, 5, 5), {"auto_pad": "SAME_LOWER", "strides": [2]},
    ),
    "a size that is given": (
        (2, 3, 7, 5), (3, 5, 4, 4), {"output_shape": [8, 5], "kernel_shape": [4, 4]},
    ),
    "a size that is given, less in front": (
        (2, 3, 7, 5), (3, 5, 4, 4), {"output_shape": [9, 7], "auto_pad": "SAME_UPPER"},
    ),
    "a size of less than a step more": (
        (2, 3, 7, 5), (3, 5, 3, 3), {"output_shape": [23, 12], "strides": [3, 2]},
    ),
    "pads that VALID leaves out": ((2, 3, 7), (3, 5, 2), {"auto_pad": "VALID"}),
}  # fmt: skip


def transposed(*operands: np.ndarray, **attributes: Any) -> np.ndarray:
    given: dict[str, Any] = {"auto_pad": "NOTSET", "group": 1}
    absent = "dilations kernel_shape output_padding output_shape pads strides"
    given |= dict.fromkeys(absent.split()) | attributes
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return conv_transpose(*operands, **given)


@pytest.mark.parametrize("has_bias", [False, True])
@each("name", [*TRANSPOSED])
def test_onnxruntime_agrees_on_conv_transpose(name: str, has_bias: bool) -> None:
    x_shape, w_shape, attributes = TRANSPOSED[name]
    maps = w_shape[1] * attributes.get("group", 1)
    arrays = drawn(x_shape, w_shape, (maps,))[: 2 + has_bias]
    expected = onnxruntime_result("ConvTranspose", arrays, attributes)
    found = transposed(*arrays, **attributes)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_halves_lie_on_the_other_side_before_opset_11() -> None:
    arrays = drawn((2, 3, 7), (3, 5, 5))
    for now, then in (("SAME_UPPER", "SAME_LOWER"), ("SAME_LOWER", "SAME_UPPER")):
        np.testing.assert_array_equal(
            transposed(*arrays, auto_pad=now, strides=[2]),
            transposed(*arrays, auto_pad=then, strides=[2], is_before_11=True),
        )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_types(dtype: type) -> None:
    """16-bit types are added up in float32 and rounded once."""
    arrays = [array.astype(dtype) for array in drawn((2, 6, 7), (4, 3, 2), (4,))]
    found = convolved(*arrays, group=2)
    wide = np.float64 if dtype is np.float64 else np.float32
    expected = convolved(*(array.astype(wide) for array in arrays), group=2).astype(dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_steps_are_those_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many channels and positions there are: one product for each place of the kernel."""
    asked: list[int] = []
    seen_at = windows._Way.seen_at

    def counted(way: windows._Way, place: int) -> slice:
        asked.append(place)
        return seen_at(way, place)

    monkeypatch.setattr(windows._Way, "seen_at", counted)
    for channels, length in ((3, 11), (70, 130)):
        convolved(*drawn((2, channels, length), (channels, 1, 5)), group=channels)
        assert asked == [0, 1, 2, 3, 4]
        asked.clear()


REFUSED: dict[str, tuple[Sizes, Sizes, Sizes, dict[str, Any], str]] = {
    "another rank": ((2, 3, 7), (5, 3, 2, 2), (5,), {}, "`X` and `W` have shapes"),
    "maps that groups do not share": (
        (2, 4, 7),
        (5, 2, 2),
        (5,),
        {"group": 2},
        "2 groups in M",
    ),
    "other channels": ((2, 3, 7), (5, 2, 2), (5,), {}, r"expected \(5, 3, 2\)"),
    "another kernel": ((2, 3, 7), (5, 3, 2), (5,), {"kernel_shape": [3]}, r"expected \(5, 3, 3\)"),
    "another bias": ((2, 3, 7), (5, 3, 2), (3,), {}, "`B` has shape"),
    "nothing fits": ((2, 3, 4), (5, 3, 7), (5,), {}, "a window of 7 does not fit"),
    "pads of two axes": ((2, 3, 4), (5, 3, 2), (5,), {"pads": [1, 1, 1, 1]}, "of 1 axes"),
}


@each("name", [*REFUSED])
def test_refusals(name: str) -> None:
    *shapes, attributes, message = REFUSED[name]
    with pytest.raises(KernelError, match=message):
        convolved(*drawn(*shapes), **attributes)


REFUSED_TRANSPOSED: dict[str, tuple[Sizes, Sizes, Sizes, dict[str, Any], str]] = {
    "channels that are not those of the filters": ((2, 3, 7), (5, 3, 2), (3,), {}, "`X` and `W`"),
    "channels that groups do not share": ((2, 3, 7), (3, 5, 2), (10,), {"group": 2}, "2 groups"),
    "another kernel": ((2, 3, 7), (3, 5, 2), (5,), {"kernel_shape": [3]}, "`W` has shape"),
    "strides of two axes": ((2, 3, 7), (3, 5, 2), (5,), {"strides": [1, 1]}, "of 1 axes"),
    "padding of a whole step": ((2, 3, 7), (3, 5, 2), (5,), {"output_padding": [1]}, "have 1, 1"),
    "more than there is": ((2, 3, 7), (3, 5, 2), (5,), {"output_shape": [9]}, "cut off sizes"),
    "nothing left": ((2, 3, 7), (3, 5, 2), (5,), {"pads": [3, 5]}, "cut off sizes"),
    "another bias": ((2, 3, 7), (3, 5, 2), (3,), {}, "`B` has shape"),
}


@each("name", [*REFUSED_TRANSPOSED])
def test_refusals_of_conv_transpose(name: str) -> None:
    *shapes, attributes, message = REFUSED_TRANSPOSED[name]
    with pytest.raises(KernelError, match=message):
        transposed(*drawn(*shapes), **attributes)
