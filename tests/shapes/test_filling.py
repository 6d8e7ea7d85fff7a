"""What is filled in behind operators that onnx does not know, for rewrites to rest on."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir

from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.shapes.annotations import annotate
from tests.grids import each

_HEAD = '<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]>'
_INPUTS = "float[B, 6] x, float[L, 3] z, float[5, 7] w"
_CONSTANTS = "<int64[1] left = {-1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>"

CASES = {
    "sizes are written": ("y = Relu (h)", {"h": ("B", 6), "y": ("B", 6)}),
    "not if one of the model must not be 0": (
        """
        n = Shape <end = 1> (z)  s = Concat <axis = 0> (left, n, two)
        r = Reshape (h, s)  y = com.microsoft.Gelu (r)
        """,
        {"h": (None, None), "r": (None, None, None), "y": (None, None, None)},
    ),
    "but if the one that must not be 0 is a number": (
        """
        n = Shape <start = 1> (z)  s = Concat <axis = 0> (left, n, two)
        r = Reshape (h, s)  y = com.microsoft.Gelu (r)
        """,
        {"h": ("B", 6), "r": ("B", 3, 2), "y": ("B", 3, 2)},
    ),
    "not if the model contradicts itself": (
        "y = MatMul (h, w)",
        {"h": (None, None), "y": (None, None)},
    ),
    "not a size that is computed from several names": (
        """
        t = Slice (h, zero, one, one)  f = Slice (z, zero, one, one)
        c = Concat <axis = 0> (t, f)  y = com.microsoft.Gelu (c)
        """,
        {"h": ("B", 6), "c": (None, 1), "y": (None, 1)},
    ),
}


@each("name", [*CASES])
def test_a_rewrite_may_rest_on_what_is_filled_in(name: str) -> None:
    body, expected = CASES[name]
    model = deserialize(
        onnx.parser.parse_model(
            f"{_HEAD} m ({_INPUTS}) => (int64 count) {_CONSTANTS}"
            f"{{ h = com.microsoft.Gelu (x) {body} count = Size (y) }}"
        ).SerializeToString()
    )
    annotate(model, fully=True)
    values = {value.name: value for node in model.graph for value in node.outputs}
    found = {name: values[name].shape for name in expected}
    assert {name: shape and shape_of(shape) for name, shape in found.items()} == expected


def shape_of(shape: ir.Shape) -> tuple[int | str | None, ...]:
    return tuple(dim if isinstance(dim, int) else dim.value for dim in shape)
