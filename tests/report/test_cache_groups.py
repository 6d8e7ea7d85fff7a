"""Layers that differ in a number are gathered; what differs in anything else is not."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.core.words import binary_bytes, counted
from onnx_kvtool.report.blocks import cache_groups, joined
from tests.grids import each


@each(
    ("names", "expected"),
    [
        pytest.param(["past"], "past", id="one name"),
        pytest.param(["k.0", "k.1", "k.2"], "k.{0..2}", id="a run"),
        pytest.param(["k.0", "k.1"], "k.{0,1}", id="two are no run"),
        pytest.param(["k.4", "k.0", "k.1", "k.2"], "k.{0..2,4}", id="a run and one more"),
        pytest.param(["past.0.key", "past.11.key"], "past.{0,11}.key", id="a number in the middle"),
        pytest.param(["l0.k0", "l1.k1"], None, id="two numbers change"),
        pytest.param(["k.00", "k.01"], None, id="numbers with leading zeros"),
        pytest.param(["key.0", "value.0"], None, id="other words"),
        pytest.param(["key#", "key0"], None, id="a sign and a number"),
    ],
)
def test_joined(names, expected) -> None:
    assert joined(names) == expected


def model(*shapes: str) -> ir.Model:
    inputs = ", ".join(f"float[{s}] past_{i}, float[B,1,5] new_{i}" for i, s in enumerate(shapes))
    outputs = ", ".join(f"float[{s}] present_{i}" for i, s in enumerate(shapes))
    nodes = "\n".join(
        f"[u{i}] present_{i} = TensorScatter <axis = 1> (past_{i}, new_{i})"
        for i in range(len(shapes))
    )
    return ir.from_proto(
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 24]> main ({inputs}) => ({outputs}) {{ {nodes} }}'
        )
    )


def test_widths_that_alternate_make_two_groups() -> None:
    groups = cache_groups(find_caches(model("B,7,5", "B,9,5", "B,7,5", "B,9,5", "B,7,5")))
    assert [(group.name, group.places) for group in groups] == [
        ("past_{0,2,4}", (0, 2, 4)),
        ("past_{1,3}", (1, 3)),
    ]
    assert [group.reason for group in groups] == [None, None]


def test_numbers_of_a_reason_that_differ_are_left_out() -> None:
    inside = model("B,7,5", "B,7,5")
    inside.graph.outputs.clear()
    (group,) = cache_groups(find_caches(inside))
    assert group.reason == "the present `present_{}` is not a graph output"


@each(
    ("number", "expected"),
    [
        (0, "0 B"),
        (2.5, "2.5 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (3 * 1024**3, "3 GiB"),
        (2**63, "8 EiB"),
    ],
)
def test_binary_bytes(number, expected) -> None:
    assert binary_bytes(number) == expected


def test_count() -> None:
    assert [counted(1, "node"), counted(1234, "node")] == ["1 node", "1,234 nodes"]
