"""Models of real exporters: more is known than other tools know, and all of it is true."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_kvtool.model_io.model import read
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import dimensions_in, read_size
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from tests.grids import part
from tests.shapes.agreement import bindings, disagreements
from tests.shapes.comparison import by_kvtool, counts, known_values
from tests.shapes.page import MODELS, rows

ROOT = Path(__file__).resolve().parent.parent.parent
PATHS = sorted(MODELS.rglob("*.onnx"))
RECORDED = [path for path in PATHS if path.with_suffix(".npz").is_file()]
NAMES = {"ids": lambda path: path.stem}

DECODERS = [path for path in PATHS if path.parent.name in ("native", "hf", "concat", "genai")]
BROKEN = {"BROKEN_gemma_static_raw_noopt"}
"""Nodes of these lack inputs that they need."""


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("path", PATHS, **NAMES)
def test_as_many_values_are_known_as_other_tools_know(path: Path) -> None:
    known = counts(path).by
    assert known["kvtool"] is not None and known["onnx"] is not None
    assert known["kvtool"] >= max(known["onnx"], known["symbolic"] or 0)  # which may give up


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("path", RECORDED, **NAMES)
def test_no_value_of_a_recorded_run_contradicts_what_was_inferred(path: Path) -> None:
    with np.load(path.with_suffix(".npz")) as arrays:
        feeds = {n.removeprefix("in:"): arrays[n] for n in arrays.files if n.startswith("in:")}
    check_run(path, feeds)


@pytest.mark.long
@part(16)
@pytest.mark.parametrize("path", RECORDED, **NAMES)
def test_no_value_of_other_sizes_contradicts_what_was_inferred(path: Path) -> None:
    inputs = plan(read(path))
    for number, case in enumerate(CASES[1:3]):
        check_run(path, draw(inputs, case, number), may_fail=True)


def check_run(path: Path, feeds: dict[str, np.ndarray], *, may_fail: bool = False) -> None:
    """Compare every value of the main graph with what was inferred."""
    model = read(path)
    found = infer_model(read(path))
    try:
        computed = all_values(path, model, feeds)
    except Exception as error:
        if not may_fail:
            raise
        pytest.skip(f"the model does not run in these sizes: {error}")
    assert list(disagreements(found, computed, bindings(model, feeds))) == []


def all_values(path: Path, model: ir.Model, feeds: dict[str, np.ndarray]) -> Mapping[str, object]:
    """Return every value of the main graph; from onnxruntime where operators are its own."""
    names = [v.name for node in model.graph for v in node.outputs if v.name]
    local = {key[:2] for key in model.functions}
    if all(is_standard(node) or (node.domain, node.op_type) in local for node in model.graph):
        return Evaluator(model).run(feeds, fetch=names).values
    message = onnx.load(path)
    outputs = {value.name for value in message.graph.output}
    message.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in outputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(message.SerializeToString(), options)
    given = [value.name for value in session.get_outputs()]
    return dict(zip(given, session.run(given, feeds), strict=True))


@part(2)
@pytest.mark.long
@pytest.mark.parametrize("path", DECODERS, **NAMES)
def test_with_all_sizes_bound_every_value_of_a_decoder_is_static(path: Path) -> None:
    model = read(path)
    dims = bound(model, path)
    report = infer_model(model, dims).report
    reasons = {value.lost.code for value in report.unknown}
    assert reasons <= ({"malformed"} if path.stem in BROKEN else {"data-dependent"})
    if path.stem not in BROKEN:
        assert not reasons


def bound(model: ir.Model, path: Path) -> dict[str, int]:
    """Return a size for every name of the inputs, as a run has them where one is recorded."""
    names = sorted(
        {
            name
            for value in model.graph.inputs
            for dim in value.shape or ()
            if isinstance(dim, ir.SymbolicDim) and dim.value
            for name in dimensions_in(read_size(dim.value))
        }
    )
    found = {name: number + 2 for number, name in enumerate(names)}
    recorded = path.with_suffix(".npz")
    if recorded.is_file():
        with np.load(recorded) as arrays:
            feeds = {n.removeprefix("in:"): arrays[n] for n in arrays.files}
        given = bindings(model, {v.name or "": feeds[v.name or ""] for v in model.graph.inputs})
        found |= {name: size for name, size in given.items() if name in found}
    return found


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("path", PATHS, **NAMES)
def test_what_is_written_says_what_was_found(path: Path) -> None:
    found, written = by_kvtool(path)
    known = known_values(written)
    unknown = {value.location.value for value in found.report.unknown}
    assert not known & unknown
    weights = [t.SerializeToString() for t in onnx.load(path).graph.initializer]
    assert [t.SerializeToString() for t in written.graph.initializer] == weights


@pytest.mark.exhaustive
@pytest.mark.long
def test_the_only_conflict_of_real_models_is_a_constant_of_the_builder() -> None:
    """The builder of onnxruntime-genai declares a Constant of one element as a scalar."""
    found = {path.stem: infer_model(read(path)).report.conflicts for path in PATHS}
    assert {stem for stem, conflicts in found.items() if conflicts} == {"genai_llama_fp32_cpu"}
    (conflict,) = found["genai_llama_fp32_cpu"]
    assert (conflict.location.op, conflict.declared, conflict.inferred) == ("Constant", (), (1,))


@pytest.mark.long
def test_the_page_has_the_rows_of_the_models_at_hand() -> None:
    text = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    for row in rows(MODELS):
        assert f"{row}\n" in text
