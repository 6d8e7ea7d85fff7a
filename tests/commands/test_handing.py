"""Static models of a decoder are proven together: their caches go from one to the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.growing_decoders import Size, growing_decoder
from onnx_kvtool.commands import handing
from onnx_kvtool.commands.handing import handed_on
from onnx_kvtool.core.machine import Budget, silent
from onnx_kvtool.model_io.model import read
from onnx_kvtool.rewrite.report import Verification
from onnx_kvtool.symbolic.dimensions import dims_of
from tests.grids import part

ROOT = Path(__file__).resolve().parents[2] / "fixtures" / "growing"
LLAMA = ROOT / "llama_eager_dynamo18.onnx"
"""It is raised in a quarter of the time that one of Optimum takes."""
BUDGET = Budget()


def halves(path: Path = LLAMA, rows: int = 19, tokens: int = 7) -> list[ir.Model]:
    return [ir.from_proto(_half(path, rows, count)) for count in (tokens, 1)]


@cache
def _half(path: Path, rows: int, tokens: int) -> onnx.ModelProto:
    batch, length = (dims_of(read(str(path)).graph.inputs[0]) or ())[:2]
    dims = {str(batch): 1, str(length): tokens}
    model, _ = kv.raise_(path, capacity=rows, static=True, dims=dims, verify=False)
    return ir.to_proto(model)


def judged(models: list[ir.Model], budget: Budget = BUDGET, path: Path = LLAMA) -> Verification:
    return handed_on(read(str(path)), models, None, dims={}, budget=budget, progress=silent)


@pytest.mark.long
def test_models_that_hand_on_their_caches_are_equal_to_the_source() -> None:
    found = judged(halves())
    assert (found.status, found.cases, found.shrunken) == ("equal", 7, ())
    assert found.max_abs_diff is not None and found.max_abs_diff < 1e-5


def caches_of_other_layers(model: ir.Model) -> None:
    """Each layer keeps its rows in the cache of the other: right alone, wrong in a pair."""
    values = [*model.graph.inputs, *model.graph.outputs]
    named = {value.name: value for value in values}
    for kind in ("past_key_values", "present"):
        one, other = named[f"{kind}.0.key"], named[f"{kind}.1.key"]
        one.name, other.name = "held", one.name
        one.name = f"{kind}.1.key"


def half_as_large_in_the_cache(model: ir.Model) -> None:
    """Values are kept twice as large as they are: right alone, wrong in a pair."""
    proto = ir.to_proto(model)
    two = onnx.numpy_helper.from_array(np.array(2, np.float32), "two")
    proto.graph.initializer.append(two)
    for node in [*proto.graph.node]:
        if node.op_type == "TensorScatter" and "0.value" in node.input[0]:
            larger = onnx.helper.make_node("Mul", [node.input[1], "two"], ["larger"])
            node.input[1] = "larger"
            present = node.output[0]
            less = onnx.helper.make_node("Div", [present, "two"], ["less"])
            for reader in proto.graph.node:
                if reader is not node:
                    names = ["less" if name == present else name for name in reader.input]
                    reader.ClearField("input")
                    reader.input.extend(names)
            nodes = [*proto.graph.node]
            at = nodes.index(node)
            del proto.graph.node[:]
            proto.graph.node.extend([*nodes[:at], larger, node, less, *nodes[at + 1 :]])
    _become(model, proto)


def one_row_late(model: ir.Model) -> None:
    proto = ir.to_proto(model)
    one = onnx.numpy_helper.from_array(np.array([1], np.int64), "late")
    proto.graph.initializer.append(one)
    for node in proto.graph.node:
        names = ["later" if name == "past_length" else name for name in node.input]
        node.ClearField("input")
        node.input.extend(names)
    nodes = [onnx.helper.make_node("Add", ["past_length", "late"], ["later"]), *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    _become(model, proto)


def _become(model: ir.Model, proto: onnx.ModelProto) -> None:
    model.graph = ir.from_proto(proto).graph


FAULTS: dict[str, tuple[Callable[[ir.Model], None], bool]] = {
    "caches of other layers": (caches_of_other_layers, True),
    "values twice as large in the cache": (half_as_large_in_the_cache, True),
    "one row late": (one_row_late, False),
}
"""What is done to a model, and whether it is right as long as no other hands it a cache."""


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("number", [0, 1], ids=["prefill", "decode"])
@pytest.mark.parametrize(("fault", "is_right_alone"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_one_model_is_found(fault, is_right_alone: bool, number: int) -> None:
    models = halves()
    fault(models[number])
    found = judged(models)
    assert found.status == "different"
    assert found.detail is not None and "output `logits` at" in found.detail
    alone = judged([models[1]])
    if number == 1:
        assert alone.status == ("equal" if is_right_alone else "different"), alone.detail


@pytest.mark.long
def test_models_of_different_caches_are_no_decoder() -> None:
    found = judged([halves()[0], ir.from_proto(_half(LLAMA, 20, 1))])
    assert found.status == "different"
    assert found.detail is not None and "the models have different caches" in found.detail


@pytest.mark.exhaustive
def test_large_models_hand_on_caches_as_copies_and_faults_are_found_there(tmp_path: Path) -> None:
    path = tmp_path / "wide.onnx"
    model = growing_decoder(Size(3, 256, 4, 2, 256), "optimum")  # over hidden states
    onnx.save(model, path)
    budget = replace(BUDGET, memory=3 << 20)
    # So many new tokens are as large as what copies have less of.
    models = halves(path, 200, 96)
    found = judged(models, budget, path)
    assert found.status == "equal", found.detail
    assert {one.what for one in found.shrunken} >= {"blocks that are alike", "widths"}
    one_row_late(models[1])
    assert judged(models, budget, path).status == "different"


@pytest.mark.long
def test_tokens_that_a_model_for_several_cannot_take_are_left_out() -> None:
    found = judged(halves()[:1])
    assert (found.status, found.cases) == ("equal", 7)
    assert found.steps < judged(halves()).steps


def test_models_without_tokens_hand_on_nothing(tmp_path: Path) -> None:
    path = ROOT.parent / "models" / "native" / "mobius_block_bias_int64_2d.onnx"
    found = judged([read(str(path))], path=path)
    assert found.status == "skipped"
    assert found.detail is not None and "kvtool finds no input for tokens" in found.detail


@pytest.mark.long
def test_without_memory_it_says_what_would_do() -> None:
    found = judged(halves(), replace(BUDGET, memory=1 << 10))
    assert found.status == "skipped"
    assert found.detail is not None
    assert "no caches were handed from one model to the next" in found.detail
    assert "`--verify-budget 1MiB` allows the models themselves" in found.detail


PAIR = ("--capacity", "19", "--static", "--phases", "prefill=7,decode=1")

NATIVE = ROOT.parent / "models" / "native" / "llama_static.onnx"
LOWERED = ("--opset", "18", "--static", "--phases", "prefill=7,decode=1")
"""Takes a quarter of the time, and both commands ask the same function."""

PLANTED = {
    "different": (Verification("different", detail="planted"), (), 1, "planted"),
    "skipped": (Verification("skipped", detail="planted"), (), 0, "nothing was proven: planted"),
    "skipped, strict": (Verification("skipped", detail="planted"), ("--strict",), 1, "planted"),
    "skipped, forced": (Verification("skipped", detail="planted"), ("--verify",), 3, "planted"),
}


@part(2)
@pytest.mark.long
@pytest.mark.parametrize(("verdict", "how", "code", "message"), PLANTED.values(), ids=PLANTED)
def test_what_is_not_equal_together_is_not_written(
    kvtool, tmp_path: Path, monkeypatch, verdict, how, code: int, message: str
) -> None:
    monkeypatch.setattr(handing, "handed_on", lambda *_, **__: verdict)
    result = kvtool("lower", NATIVE, *LOWERED, *how, "-o", tmp_path / "pair")
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert (tmp_path / "pair").exists() == (code == 0)


@pytest.mark.exhaustive
def test_the_report_of_a_pair_is_of_both_together(kvtool, tmp_path: Path) -> None:
    made = kvtool("raise", LLAMA, *PAIR, "-o", tmp_path / "pair", "--format", "json")
    report = json.loads(made.stdout)["verification"]
    assert report["status"] == "equal"
    assert report["detail"] == "each model went on with the caches of the other"
