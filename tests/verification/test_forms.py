"""A comparison by the reference says which operators ran as the form that is to be proven."""

from __future__ import annotations

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.choices import RuntimeName
from tests.grids import each
from tests.runtime.recorded import model

GELU = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (TYPE[N, 7] x) => (TYPE[N, 7] y) { y = com.microsoft.QuickGelu (x) }
"""
FORM = """
<ir_version: 10, opset_import: ["": 21]>
g (TYPE[N, 7] x) => (TYPE[N, 7] y) {
  a = Constant <value_float: float = 1.702> ()
  b = CastLike (a, x)
  c = Mul (x, b)
  d = Sigmoid (c)
  y = Mul (x, d)
}
"""


@pytest.mark.long
@each(
    ("dtype", "other", "runtime", "said"),
    {
        "onnxruntime is a witness": ("float", FORM, "auto", False),
        "the reference is none": ("float", FORM, "reference", True),
        "onnxruntime has no kernel": ("bfloat16", FORM, "auto", True),
        "nothing was rewritten": ("float", GELU, "reference", False),
    },
)
def test_what_the_reference_cannot_notice(
    dtype: str, other: str, runtime: RuntimeName, said: bool
) -> None:
    one, other = (text.replace("TYPE", dtype) for text in (GELU, other))
    found = kv.verify(model(one), model(other), runtime=runtime)
    assert found.status == "equal", found.detail
    assert any("`QuickGelu` as the standard form" in note for note in found.notes) is said
