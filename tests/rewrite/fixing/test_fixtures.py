"""Models of real exporters with all sizes fixed: no Shape, no name of a size, and equal."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.core.walk import graphs, nodes
from onnx_kvtool.model_io.model import read
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.errors import CannotDraw, RunFailed
from onnx_kvtool.runtime.onnxruntime import Session
from onnx_kvtool.symbolic.dimensions import dim_names
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.symbols import attempts
from tests.grids import part

pytestmark = pytest.mark.long

_FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
_BROKEN = {"BROKEN_gemma_static_raw_noopt"}
"""Nodes of these lack inputs that they need."""

_PATHS = [path for path in sorted(_FIXTURES.rglob("*.onnx")) if path.stem not in _BROKEN]

_ONE_TOKEN = {"t5_decoder_with_past__optimum"}
"""Models that are declared to take one token at a time."""

_SIZES = {
    "genai_llama_fp32_cpu": {
        "batch_size": 1,
        "sequence_length": 2,
        "past_sequence_length": 5,
        "total_sequence_length": 7,
        "kv_cache_dim": 16,
    },
    "experts": {
        "batch_size": 1,
        "sequence_length": 2,
        "past_sequence_length": 5,
        "total_sequence_length": 7,
    },
    "sparse_attention": {"batch_size": 1, "sequence_length": 2, "total_sequence_length": 7},
}
"""Sizes of models that run at those alone that their names suggest to people."""

_DYNAMIC = {
    "t5_decoder_merged__optimum": "dynamic-size",  # without a cache a branch hands out an empty one
    "slice_cat__dynamo_op18": "dynamic-size",
    "slice_assign_item__dynamo_op18": "dynamic-size",
}
"""Models that compute sizes from the elements of an input, and what is said of them."""


def sizes_to_run(path: Path) -> dict[str, int]:
    """Return sizes for the names of a model's dimensions at which it runs."""
    model = read(path)
    inputs, session = plan(model), Session(path.read_bytes(), str(path.parent))
    wanted = CASES[1] if path.stem in _ONE_TOKEN else CASES[2]
    for case, sizes in attempts(inputs, wanted, {}):
        if any(sizes[name] < 1 for name in dim_names(model)):
            continue
        try:
            session.run(draw(inputs, case, 0, sizes))
        except (CannotDraw, RunFailed):
            continue
        return {name: sizes[name] for name in dim_names(model)}
    pytest.skip("the model runs at no sizes that were tried")


def assert_static(model: ir.Model) -> None:
    """Hold a model against what `--static` promises."""
    assert not [n.op_type for _, _, n in nodes(model) if Trait.GIVES_SIZES in traits(n)]
    functions = {function.graph for function in model.functions.values()}
    for _, graph in graphs(model):
        if graph in functions:
            continue
        for value in (*graph.inputs, *(out for node in graph for out in node.outputs if out.name)):
            assert value.shape is not None and value.shape.is_static(), value.name


@part(48)
@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_a_fixture_is_static(path: Path) -> None:
    dims = _SIZES.get(path.stem) or sizes_to_run(path)
    if path.stem in _DYNAMIC:
        with pytest.raises(Refused) as error:
            lower(str(path), opset=17, dims=dims, static=True)
        codes = {refused.code for refused in error.value.report.reasons}
        assert codes == {_DYNAMIC[path.stem]}
        return
    model, report = lower(str(path), opset=17, dims=dims, static=True)
    assert_static(model)
    assert report.verification.status == "equal"


@pytest.mark.parametrize("stem", ["slice_cat__dynamo_op18", "slice_assign_item__dynamo_op18"])
def test_an_update_whose_sizes_depend_on_elements_is_static_once_it_is_raised(stem: str) -> None:
    """TensorScatter writes at the position that cut the cache before."""
    (path,) = (path for path in _PATHS if path.stem == stem)
    raised, _ = raise_(str(path), dims={"s28": 2, "s6": 3}, static=True)
    assert_static(raised)
    model, report = lower(raised, opset=17, static=True)
    assert_static(model)
    assert report.verification.status == "equal"
