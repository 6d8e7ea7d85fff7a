"""Exactly the edit is told, of every fixture and every edit, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import onnx_kvtool as kv
from tests.grids import search, thinned
from tests.review.edits import EDITS, Told, told

ROOT = Path(__file__).resolve().parents[2]
MODELS = {p.stem: p for p in sorted((ROOT / "fixtures" / "models").rglob("*.onnx"))}

SMALL = """
    <ir_version: 10, opset_import: ["": 18, "my": 1], metadata_props: ["b": "2", "a": "1"]>
    main (float[B, 3] left, float[B, 3] right, bool flag, int64[B] index)
        => (float[B, 3] z, float[B, 3] total)
    <float[3, 7] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21}, float eps = {0.5},
     float[B, 3] sum, float[B, 3] act>
    {
        [first] sum = Add (left, right)
        [act] act = Sigmoid (sum)
        [up] wide = MatMul (act, w)
        [down] back = my.Fold <alpha: float = 0.25> (wide, w)
        [k] half = Constant <value: tensor = float[2] {0.5, 2.0}> ()
        [root] root = Sqrt (back)
        [scaled] scaled = Mul (root, eps)
        [choice] picked = If (flag) <
            then_branch: graph = yes () => (float[B, 3] p) { [deep] p = Mul (scaled, act) },
            else_branch: graph = no () => (float[B, 3] q) { [flat] q = Neg (scaled) }>
        [last] z = Sub (picked, sum)
        [total] total = Add (scaled, eps)
        [idle] unused = Relu (half)
    }
    <domain: "my", opset_import: ["": 18]>
    Fold <alpha> (v, k) => (r) {
        [t] t = Transpose <perm: ints = [1, 0]> (k)
        [m] r = MatMul (v, t)
    }
"""


@cache
def model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(SMALL) if name == "small" else onnx.load(MODELS[name])


def edited(name: str, edit: str) -> tuple[onnx.ModelProto, Told | None]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model(name))
    return copy, EDITS[edit](copy)


def check(name: str, edit: str) -> None:
    new, wanted = edited(name, edit)
    if wanted is None:
        return
    report = kv.diff(model(name), new)
    said = told(report.to_json(), wanted)
    if said.pop("caches", None):  # what an edit does to them is a fact of its own
        assert _caches(model(name)) != _caches(new)
    assert _in_any_order(said) == _in_any_order(wanted)
    assert report.status == ("different" if wanted else "same")


def _caches(proto: onnx.ModelProto) -> list[dict[str, Any]]:
    return [cache.to_json() for cache in kv.inspect(proto).caches]


def _in_any_order(said: Told) -> dict[str, list[str]]:
    return {k: sorted(json.dumps(one, sort_keys=True) for one in v) for k, v in said.items()}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_told_and_nothing_else(edit: str) -> None:
    assert edited("small", edit)[1] is not None
    check("small", edit)


COMPOSED = [
    "one weight", "a scalar", "an attribute that came", "renamed value", "opset", "producer",
    "metadata", "remark of a node", "another domain", "a weight that nobody reads",
    "name of the graph", "an input that came", "sorted otherwise", "body of a function",
    "within a body", "swapped inputs", "an inserted node", "lists sorted otherwise",
]  # fmt: skip


@search(30)
@given(drawn=st.sets(st.sampled_from(COMPOSED), max_size=5))
def test_of_several_edits_each_is_told(drawn: set[str]) -> None:
    new, wanted = onnx.ModelProto(), Counter[str]()
    new.CopyFrom(model("small"))
    for name in COMPOSED:  # what inserts nodes comes last: the others would choose them
        if name in drawn:
            for section, changes in (EDITS[name](new) or {}).items():
                wanted[section] += len(changes)
    report = kv.diff(model("small"), new).to_json()
    said = {section: len(changes) for section, changes in told(report, {}).items()}
    assert said == wanted
    back = kv.diff(new, model("small")).to_json()
    swapped = {"added": "removed", "removed": "added"}
    returned = {swapped.get(s, s): len(c) for s, c in told(back, {}).items()}
    assert returned == said


BROKEN = {
    "a value that nothing makes": lambda m: m.graph.node[1].input.__setitem__(0, "nowhere"),
    "an output that nothing makes": lambda m: m.graph.output.add(name="nowhere"),
    "two inputs of one name": lambda m: m.graph.input.add().CopyFrom(m.graph.input[0]),
    "data that is too short": lambda m: m.graph.initializer[0].float_data.pop(),
    "texts that are too few": lambda m: m.graph.initializer.add(name="t", data_type=8, dims=[3]),
    "a Constant without a number": lambda m: m.graph.node.append(
        helper.make_node("Constant", [], ["c"], value_int="three")
    ),
    "nodes in a circle": lambda m: m.graph.node[0].input.__setitem__(0, "act"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_the_same_as_itself(name: str) -> None:
    broken = onnx.ModelProto()
    broken.CopyFrom(model("small"))
    BROKEN[name](broken)
    assert kv.diff(broken, broken).status == "same"
    assert kv.diff(model("small"), broken).status == "different"
    assert kv.print(broken) != kv.print(model("small"))


EDITED = [
    pytest.param(name, edit, id=f"{name}-{edit}")
    for number, name in enumerate(MODELS)
    for edit in [*EDITS][number % 2 :: 2]
]
"""Each edit in every second model."""


@pytest.mark.long
@pytest.mark.parametrize(("name", "edit"), thinned(EDITED, 23))
def test_an_edit_of_an_exported_model_is_told_and_nothing_else(name: str, edit: str) -> None:
    check(name, edit)


@pytest.mark.parametrize("went", [True, False])
def test_a_function_without_nodes_is_told(went: bool) -> None:
    other, new = model("small"), onnx.ModelProto()
    new.CopyFrom(other)
    imports = [helper.make_opsetid("", 18)]
    new.functions.append(helper.make_function("my", "Same", ["x"], ["x"], [], imports))
    report = kv.diff(new, other) if went else kv.diff(other, new)
    (change,) = report.functions
    assert (change.name, change.what) == ("my::Same", "removed" if went else "added")
    assert (change.old, change.new) == (("0 nodes", None) if went else (None, "0 nodes"))
