"""Malformed nodes are refused by name, whatever rule would have rewritten them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.parser
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.rewrite.report import Refused
from tests.grids import each


def _refusal(body: str, opset: int, target: int | None, only: Sequence[str] = ()) -> str:
    header = f'<ir_version: 9, opset_import: ["" : {opset}]>'
    text = f"{header} g (float[2, 3, 5] x, int64[2] n) => (y) {{ {body} }}"
    model = deserialize(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(Refused) as caught:
        lower(model, opset=target, only=only, verify=False)
    (diagnostic,) = caught.value.report.refused
    assert diagnostic.lowest_opset is None  # it is broken at every opset
    return f"{diagnostic.code}: {diagnostic.message}"


@each(
    ("body", "said"),
    [
        pytest.param("y = Constant()", "constant-form", id="Constant without a value"),
        pytest.param("y = TensorScatter(x)", "missing-input", id="an input too few"),
        pytest.param("y = TensorScatter<axis = 0.5>(x, x)", "attribute-type", id="a float axis"),
        pytest.param("y = TensorScatter<axes = 1>(x, x)", "attribute: ", id="an unknown attribute"),
        pytest.param("y = Gelu(n)", "element-type: the node is malformed", id="another type"),
        pytest.param("y, z = Swish(x)", "output", id="an output too many"),
    ],
)
def test_a_malformed_node_is_refused(body: str, said: str) -> None:
    assert said in _refusal(body, 24, 11)


def test_opset_0_is_refused() -> None:
    said = _refusal("y = TensorScatter(x, x)", 0, None, ["TensorScatter"])
    assert said.startswith("unknown-opset: the model imports version 0 ")
