"""What raise and lower write passes onnx's full check, whatever `value_info` of the source says."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.shapes.annotations import forget_contradictions
from tests.grids import each, rest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
FOUND = sorted(str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.onnx"))
OFTEN = [
    "models/genai/genai_llama_fp32_cpu.onnx",
    "models/native/BROKEN_gemma_static_raw_noopt.onnx",
    "models/optimized/llama_static__ts_op17__ortext.onnx",
]


def _passes(model: ir.Model) -> None:
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_the_fixtures_are_there() -> None:
    assert set(OFTEN) <= set(FOUND)


@pytest.mark.long
@pytest.mark.parametrize("name", [*OFTEN, *rest(*(name for name in FOUND if name not in OFTEN))])
def test_what_is_written_of_a_fixture_passes(name: str) -> None:
    """What growing caches are raised to passes in tests/test_growing_models.py."""
    path = FIXTURES / name
    for change in (
        lambda: kv.raise_(path, capacity=16, partial=True, verify=False),
        lambda: kv.lower(path, opset=18, contrib="standard", verify=False),
    )[name.startswith("growing/") :]:
        try:
            model, report = change()
        except kv.KvtoolError:
            continue
        unchanged = isinstance(report, kv.RaiseReport) and not report.is_changed
        if not unchanged and not any(node.domain for node in model.graph):
            _passes(model)


def _model(declared: str, body: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
    g (float[2,3] x, bool flag) => (float[2,3] y) <{declared}> {{
      two = Constant <value = int64[1] {{2}}> () one = Constant <value_float = 1.0> ()
      a = Add (x, one) b = Transpose (a) {body or "c = Transpose (b)"} y = Identity (c)
    }}""")


DECLARED = {
    "a constant of rank 1 as rank 0": ("int64 two", {"two": [1]}),
    "a size": ("float[2,3] a, float[3,7] b", {"a": [2, 3], "b": None}),
    "a rank": ("float[2,3] a, float[3,2,1] b", {"a": [2, 3], "b": None}),
    "an element type": ("float[2,3] a, int64[3,2] b", {"a": [2, 3], "b": None}),
    "nothing; names of sizes stay": ("float[N,3] a, float[3,N] b", {"a": ["N", 3], "b": [3, "N"]}),
}


@each(("declared", "shapes"), DECLARED)
def test_what_contradicts_is_dropped_and_nothing_else(
    declared: str, shapes: dict[str, list[int | str] | None]
) -> None:
    model = ir.from_proto(_model(declared))
    forget_contradictions(model)
    _passes(model)
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name, shape in shapes.items():
        known = values[name].shape
        assert (None if known is None else [getattr(d, "value", d) for d in known]) == shape


def test_what_a_body_says_is_dropped_as_well() -> None:
    both = [
        f"{name} () => (float[2,3] o{name}) <float[3,9] m{name}>"
        f" {{ m{name} = Transpose (a) o{name} = Transpose (m{name}) }}"
        for name in ("yes", "no")
    ]
    body = f"c = If (flag) <then_branch = {both[0]}, else_branch = {both[1]}>"
    model = ir.from_proto(_model("float[2,3] a", body))
    with pytest.raises(Exception, match="differ in dim"):
        _passes(model)
    forget_contradictions(model)
    _passes(model)
