"""KV203 and KV204: what the indices of scatters hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.lint.cases import Case, cases, check_case


def nd(numbers: str, shape: str = "[2, 1]", data: str = "[7, 5]", attributes: str = "") -> str:
    """Return a ScatterND of constant indices."""
    given = f"<{attributes}>" if attributes else ""
    return f"""
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float{data} past, float[] update) => (float{data} present)
            <int64{shape} index = {{{numbers}}}> {{
            [cache] present = ScatterND {given} (past, index, update)
        }}
    """


def elements(numbers: str, shape: str = "[2, 2]", data: str = "[2, 7]", axis: int = 1) -> str:
    """Return a ScatterElements of constant indices."""
    return f"""
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float{data} past, float{shape} update) => (float{data} present)
            <int64{shape} index = {{{numbers}}}> {{
            [cache] present = ScatterElements <axis: int = {axis}> (past, index, update)
        }}
    """


def computed(nodes: str, data: str = "[7, 5]", update: str = "[3, 5]") -> str:
    """Return a ScatterND whose `index` comes out of nodes with the inputs `w` and `n`."""
    return f"""
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float{data} past, float{update} update, int64 w, int64[n] many, int64[3] three)
            => (float{data} present)
            <int64[1] last = {{-1}}, int64 one = {{1}}, int64 zero = {{0}}, int64[1] first = {{0}},
             int64[2] rows = {{3, 1}}> {{
            {nodes}
            [cache] present = ScatterND (past, index, update)
        }}
    """


SAME_ROW = "index = Expand (w, rows)"
FROM_W = """
    length = Constant <value_int: int = 3> ()
    count = Range (zero, length, one)
    flat = Add (count, w)
    index = Unsqueeze (flat, last)
"""
FROM_THE_END = """
    all = Shape <start: int = 0, end: int = 1> (past)
    length = Constant <value_int: int = 3> ()
    count = Range (zero, length, one)
    flat = Add (count, all)
    index = Unsqueeze (flat, last)
"""
LAST_ROWS = FROM_THE_END.replace(
    "flat = Add (count, all)",
    "top = Sub (all, {})\n    flat = Add (count, top)",
)
WRAPPED = FROM_W.replace(
    "index =",
    "seven = Constant <value_int: int = {}> ()\n    turned = Mod (flat, seven)\n    index =",
).replace("Unsqueeze (flat", "Unsqueeze (turned")


def large(repeat: bool) -> Callable[[], onnx.ModelProto]:
    """Return a maker of a model with more indices than the folding of small integers reads."""

    def make() -> onnx.ModelProto:
        index = np.broadcast_to(np.arange(5).reshape(1, 1, 5, 1), (2, 64, 5, 16)).copy()
        if repeat:
            index[1, 40, 4, 7] = 3
        graph = helper.make_graph(
            [
                helper.make_node(
                    "ScatterElements", ["past", "index", "update"], ["present"], "cache", axis=2
                )
            ],
            "decoder",
            [
                helper.make_tensor_value_info("past", 1, [2, 64, 7, 16]),
                helper.make_tensor_value_info("update", 1, index.shape),
            ],
            [helper.make_tensor_value_info("present", 1, [2, 64, 7, 16])],
            [numpy_helper.from_array(index, "index")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    return make


@cases(
    [
        Case(
            "one row twice",
            nd("3, 3"),
            at=["cache"],
            says="`index` has the index [3] twice, at tuples 0 and 1, without a reduction",
        ),
        Case(
            "from the front and from the end", nd("6, -1"), at=["cache"], says="the index [6] twice"
        ),
        Case(
            "three times",
            nd("3, 4, 3, 3", "[4, 1]"),
            at=["cache"],
            says="at tuples 0 and 2, and 1 more repetitions",
        ),
        Case(
            "whole tuples",
            nd("0, 4, 1, 4, 0, 4", "[3, 2]"),
            at=["cache"],
            says="the index [0, 4] twice, at tuples 0 and 2",
        ),
        Case(
            "one column twice",
            elements("1, 1, 0, 1"),
            at=["cache"],
            says="the index 1 twice along axis 1",
        ),
        Case("a negative axis", elements("1, 2, -1, 6", axis=-1), at=["cache"], says="index 6"),
        Case(
            "a Constant node",
            computed("index = Constant <value: tensor = int64[2, 1] {2, 2}> ()"),
            at=["cache"],
        ),
        Case("far inside a large constant", large(True), at=["cache"], says="the index 3 twice"),
        Case(
            "one computed row for all",
            computed(SAME_ROW),
            at=["cache"],
            says="same index at every coordinate along its dimension 0",
            severity="info",
        ),
        Case("different rows", nd("3, 4")),
        Case("different tuples", nd("0, 4, 1, 4", "[2, 2]")),
        Case("a sum may meet", nd("3, 3", attributes='reduction: string = "add"')),
        Case("one index in two lines", elements("1, 0, 1, 0")),
        Case("one index along another axis", elements("0, 0, 1, 1", axis=0)),
        Case("-1 of unknown size", nd("6, -1", data="[s, 5]")),
        Case("nothing to write", nd("", "[0, 1]")),
        Case("a large constant", large(False)),
        Case("counting from a start", computed(FROM_W)),
        Case("free positions", computed("index = Unsqueeze (three, last)")),
        Case(
            "one row",
            computed(
                SAME_ROW.replace("rows", "single").replace(
                    "index", "single = Constant <value_ints: ints = [1, 1]> ()\n index", 1
                )
            ),
        ),
    ]
)
def test_scatter_duplicate_indices(case: Case) -> None:
    check_case("KV203", case)


@pytest.mark.long
@cases(
    [
        Case(
            "one row too far",
            nd("6, 7"),
            at=["cache"],
            says="`index` has the index 7 along axis 0 of `past` (size 7), expected -7 to 6",
        ),
        Case("below the first", nd("-8, 0"), at=["cache"], says="the index -8"),
        Case(
            "the second component",
            nd("0, 4, 1, 5", "[2, 2]"),
            at=["cache"],
            says="the index 5 along axis 1 of `past` (size 5), expected -5 to 4",
        ),
        Case(
            "two of four",
            elements("7, 1, 2, 9"),
            at=["cache"],
            says="along axis 1 of `past` (size 7), expected -7 to 6, and 1 more outside",
        ),
        Case(
            "a reduction does not help",
            nd("6, 7", attributes='reduction: string = "add"'),
            at=["cache"],
        ),
        Case("a size beside a name", nd("0, 5", "[1, 2]", "[s, 5]"), at=["cache"], says="axis 1"),
        Case(
            "from the end on",
            computed(FROM_THE_END, "[s, 5]"),
            at=["cache"],
            says="along axis 0 of `past` (size s), expected -(s) to s - 1",
        ),
        Case("the last of three rows", computed(LAST_ROWS.format("one"), "[s, 5]"), at=["cache"]),
        Case(
            "a modulus that is too large",
            computed(
                "ten = Constant <value_int: int = 10> ()\n flat = Add (three, ten)\n"
                "big = Max (flat, ten)\n index = Unsqueeze (big, last)"
            ),
            at=["cache"],
        ),
        Case("the last three rows", computed(LAST_ROWS.format("length"), "[s, 5]")),
        Case("the first and the last", nd("-7, 6")),
        Case("unknown size", nd("99, -99", data="[s, 5]")),
        Case("unknown rank", nd("99, -99", data="[]")),
        Case("another axis is shorter", elements("0, 6, 5, 1")),
        Case("a start of the caller", computed(FROM_W)),
        Case("wrapped at the size", computed(WRAPPED.format(7))),
        Case("wrapped beyond the size, which may not happen", computed(WRAPPED.format(9))),
        Case("free positions", computed("index = Unsqueeze (three, last)")),
        Case("the last row, from the end", computed("index = Expand (last, rows)")),
        Case("nothing to write", nd("", "[0, 1]")),
        Case("rows of no length", computed(FROM_THE_END.replace("int = 3", "int = 0"), "[s, 5]")),
    ]
)
def test_scatter_index_out_of_bounds(case: Case) -> None:
    check_case("KV204", case)
