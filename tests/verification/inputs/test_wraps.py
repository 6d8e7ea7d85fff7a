"""Which numbers starts are taken modulo on their way to a scatter."""

from __future__ import annotations

import pytest

from onnx_kvtool.verification.inputs.roles import wraps
from tests.grids import each
from tests.runtime.recorded import model

TEXT = """
<ir_version: 10, opset_import: ["": 18]>
g (float[S, 5] past, float[B, 5] update, int64[B] start, int64 size) => (float[S, 5] present)
{
  unit = Constant <value_ints = [1]> () seven = Constant <value_int = 7> ()
  three = Constant <value_int = 3> ()
  BODY
  index = Unsqueeze (at, unit)
  present = ScatterND (past, index, update)
}
"""


@each(
    ("body", "expected"),
    [
        pytest.param("at = Mod (start, seven)", [7], id="a constant"),
        pytest.param("next = Add (start, three) at = Mod (next, seven)", [7], id="behind a sum"),
        pytest.param(
            "wide = Mod (start, seven) next = Add (wide, three) at = Mod (next, seven)",
            [7],
            id="twice",
        ),
        pytest.param(
            "most = Max (size, seven) at = Mod (start, most)", [7], id="the larger of two sizes"
        ),
        pytest.param(
            "row = Mod (start, seven) low = Less (start, three) at = Where (low, three, row)",
            [7],
            id="with a negative start sent elsewhere",
        ),
        pytest.param(
            "row = Mod (start, seven) b = Cast <to = 9> (row) at = Where (b, three, start)",
            [],
            id="as a condition",
        ),
        pytest.param("at = Identity (start)", [], id="no modulo"),
        pytest.param("at = Mod (start, size)", [], id="a size that is fed"),
        pytest.param("at = Mod (seven, start)", [], id="as the divisor"),
        pytest.param(
            "odd = Mod (start, three) at = Cast <to = 7> (start)",
            [],
            id="not on the way to a scatter",
        ),
        pytest.param("far = Mul (start, three) at = Mod (far, seven)", [7], id="behind a product"),
        pytest.param("low = Min (start, three) at = Mod (low, seven)", [], id="behind a limit"),
    ],
)
def test_capacities(body: str, expected: list[int]) -> None:
    source = model(TEXT.replace("BODY", body))
    start = next(value for value in source.graph.inputs if value.name == "start")
    assert [size for size, _ in wraps(start)] == expected
