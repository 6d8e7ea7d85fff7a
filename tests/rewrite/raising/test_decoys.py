"""What looks like the update of a cache and is none is never raised."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from tests.grids import each, part
from tests.rewrite.raising.brute_force import Draws, Runtimes, compare
from tests.rewrite.raising.decoys.decoy import INSIDE, Decoy
from tests.rewrite.raising.decoys.table import DECOYS
from tests.rewrite.raising.forms import concat, elements, one_hot, shared, tuples

SOUND = {
    "ScatterElements": (elements(), Draws()),
    "tuples of ScatterND": (tuples(), Draws()),
    "ScatterND between transposes": (shared(), Draws()),
    "Where": (one_hot(), Draws({"w": range(5)})),
    "Concat of slices": (concat(), INSIDE),
}
"""The forms that the decoys distort."""


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.28")
@pytest.mark.parametrize(("text", "draws"), SOUND.values(), ids=SOUND)
def test_the_forms_that_the_decoys_distort_are_raised(text: str, draws: Draws) -> None:
    source = parsed(text)
    model, report = kv.raise_(ir.from_proto(source), assume=["in-range"], verify=False)
    (done,) = report.raised
    result = onnx.load_from_string(serialize(model))
    found = compare(source, result, draws, [done.write_indices])
    assert found.compared and not found.faults


@part(2)
@pytest.mark.parametrize("is_granted", [False, True], ids=["nothing granted", "all granted"])
@pytest.mark.parametrize("decoy", DECOYS.values(), ids=DECOYS)
def test_a_decoy_stays(decoy: Decoy, is_granted: bool) -> None:
    source = ir.from_proto(parsed(decoy.text))
    assume = decoy.granted if is_granted else ()

    model, report = kv.raise_(source, assume=assume, verify=False)

    assert report.raised == []
    assert serialize(model) == serialize(source)


@each("decoy", DECOYS)
def test_a_decoy_is_a_model_that_runs(decoy: Decoy) -> None:
    source = parsed(decoy.text)
    onnx.checker.check_model(source)
    runtimes = Runtimes(source)
    runs = (runtimes.run(feeds) for feeds in decoy.draws.feeds(source))
    is_defined = any(outputs is not None for run in runs for outputs in run.values())
    assert is_defined == decoy.is_defined
