"""What `raise` says of decoders with many layers, and of those where there is nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.report.blocks import Grid, Line
from onnx_kvtool.report.proof_text import raise_blocks
from onnx_kvtool.rewrite.raise_report import Raised, RaisedAttention, RaiseReport, Unraised
from tests.grids import each

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def update(layer: int, what: str, node: str, axis: int = 2) -> Raised:
    place = Location("main", node=node, index=layer, op="ScatterND")
    past, present = f"past.{layer}.{what}", f"present.{layer}.{what}"
    return Raised(place, "scatter_nd", axis, "linear", past, "new", "start", present, ("proof",))


def report(layers: int, node: str = "layers.{}/{}/Scatter", **facts: object) -> RaiseReport:
    raised = [
        update(layer, what, node.format(layer, what))
        for layer in range(layers)
        for what in ("key", "value")
    ]
    return RaiseReport("m.onnx", None, 18, 24, 11, raised=raised, **facts)


def rows(made: RaiseReport) -> list[tuple[str, ...]]:
    return [row for block in raise_blocks(made) if isinstance(block, Grid) for row in block.rows]


def test_updates_of_a_few_layers_are_told_one_by_one() -> None:
    assert len(rows(report(6))) == 12


def test_updates_of_many_layers_are_two_lines() -> None:
    assert rows(report(30)) == [
        (
            f"layers.{{0..29}}/{what}/Scatter",
            "2",
            "linear",
            f"past.{{0..29}}.{what}",
            "start",
            f"present.{{0..29}}.{what}",
        )
        for what in ("key", "value")
    ]


def test_what_is_no_name_is_not_folded() -> None:
    made = report(30)
    made.raised[:2] = [update(0, what, f"layers.0/{what}/Scatter", axis=1) for what in "kv"]
    assert [row[1] for row in rows(made)] == ["1", "1", "2", "2"]


def test_nodes_whose_numbers_are_no_range_are_counted() -> None:
    made = report(30)
    made.raised = [update(i, "key", f"node_{7 * i}") for i in range(30)]
    ((label, *_, present),) = rows(made)
    assert (label, present) == ("node_0 and 29 others alike", "present.{0..29}.key")


def test_attention_of_many_layers_is_one_line() -> None:
    made = report(0)
    made.attention = [
        RaisedAttention(Location("main", node=f"Softmax_{i}", index=i), "sliced", mask, ("proof",))
        for i, mask in enumerate(["kept", "causal"] * 15)
    ]
    assert [row[1:] for row in rows(made)] == [("sliced", "kept"), ("sliced", "causal")]


def test_refusals_that_differ_in_names_only_are_one_line() -> None:
    made = report(0)
    made.refused = [
        Unraised(
            Location("main", node=f"Concat_{i}", index=i, op="Concat"),
            "growing-cache",
            f"`past.{i}.key` grows with every step",
        )
        for i in range(30)
    ]
    said = [block for block in raise_blocks(made) if isinstance(block, Line)]
    assert [line.text for line in said if line.label == "growing-cache"] == [
        "main, node `Concat_0` (Concat) and 29 others alike: `past.0.key` grows with every step"
    ]


def test_what_blocks_in_each_layer_is_one_line_with_its_remedy() -> None:
    made = report(0)
    made.blocked = [
        Diagnostic(
            "dynamic-size",
            "error",
            Location("main", node=f"NonZero_{i}", index=i, op="NonZero"),
            f"it counts nonzero elements of `x.{i}`",
            "declare its shape" if i < 30 else None,
        )
        for i in range(31)
    ]
    said = [block for block in raise_blocks(made) if isinstance(block, Line)]
    places = [line.text.split(":")[0] for line in said if line.label == "dynamic-size"]
    assert places == [
        "main, node `NonZero_0` (NonZero) and 29 others alike",
        "main, node `NonZero_30` (NonZero)",
    ]
    assert [line.text for line in said if line.label == "  help"] == ["declare its shape"]


@each(
    ("model", "note"),
    [
        pytest.param(
            "models/native/llama_static.onnx",
            "`key_cache.0`, `value_cache.0`, `key_cache.1`, `value_cache.1`: TensorScatter updates"
            " them already",
            id="a native decoder",
        ),
        pytest.param(
            "encoders/resnet.onnx",
            "no cache was found: no input comes back as an output with new rows in it",
            id="no decoder",
        ),
    ],
)
def test_where_nothing_is_raised_it_is_said_why(model: str, note: str) -> None:
    _, made = kv.raise_(FIXTURES / model, verify=False)
    assert not made.is_changed
    assert made.notes == [note]


@pytest.mark.long
def test_a_refusal_is_reason_enough() -> None:
    _, made = kv.raise_(FIXTURES / "growing/cohere__dynamo_op23.onnx", verify=False)
    assert len(made.refused) == 4 and made.notes == []
