"""MaxPool of a picture without pixels."""

import numpy as np
import onnx.parser
import pytest

import onnx_kvtool as kv


def test_a_picture_without_pixels_is_refused() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]> g (float[2, 3, 0] x) => (float[A, B, C] y) {
            y = MaxPool <kernel_shape = [2], pads = [1, 2]> (x)
        }
    """)
    with pytest.raises(kv.KvtoolError, match="sees padding alone"):
        kv.evaluate(model, {"x": np.zeros((2, 3, 0), np.float32)})


def test_no_window_gives_no_element() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]> g (float[2, 3, 2, 0] x) => (float[A, B, C, D] y) {
            y = MaxPool <auto_pad = "SAME_UPPER", kernel_shape = [2, 2]> (x)
        }
    """)
    y = kv.evaluate(model, {"x": np.zeros((2, 3, 2, 0), np.float32)})["y"]
    assert (y.shape, y.dtype) == ((2, 3, 2, 0), np.float32)
