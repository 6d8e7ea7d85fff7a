"""KV201, KV202, KV205, KV206: shapes, types and attributes of scatters."""

from __future__ import annotations

import pytest

from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.targets.target import find_target
from tests.lint.cases import Case, cases, check_case, lint


def scatter(
    op: str,
    data: str,
    indices: str,
    updates: str,
    attributes: str = "",
    opset: int = 18,
) -> str:
    """Return a model of one scatter `cache`; the operands are types."""
    given = f"<{attributes}>" if attributes else ""
    return f"""
        <ir_version: 10, opset_import: ["": {opset}]>
        decoder ({data} past, {indices} index, {updates} update) => ({data} present) {{
            [cache] present = {op} {given} (past, index, update)
        }}
    """


def nd(data: str, indices: str, updates: str) -> str:
    return scatter("ScatterND", f"float{data}", f"int64{indices}", f"float{updates}")


def elements(data: str, indices: str, updates: str, axis: int = 2) -> str:
    return scatter(
        "ScatterElements",
        f"float{data}",
        f"int64{indices}",
        f"float{updates}",
        f"axis: int = {axis}",
    )


@cases(
    [
        Case(
            "a slice is missing a dimension",
            nd("[2, 7, 3, 5]", "[2, 1, 2]", "[2, 3, 5]"),
            at=["cache"],
            says="`updates` has rank 3, expected 4: rank 3 of `indices` + rank 4 of `data` - 2 "
            "index components - 1",
        ),
        Case(
            "tuples longer than the rank",
            nd("[2, 7]", "[4, 3]", "[4]"),
            at=["cache"],
            says="index tuples have 3 components, `data` has rank 2",
        ),
        Case(
            "fewer slices than tuples",
            nd("[2, 7, 3, 5]", "[2, 1, 2]", "[3, 1, 3, 5]"),
            at=["cache"],
            says="dimension 0 of `updates` is 3, expected 2 as in `indices`",
        ),
        Case(
            "slices of another size",
            nd("[2, 7, 3, 5]", "[2, 1, 2]", "[2, 1, 3, 6]"),
            at=["cache"],
            says="dimension 3 of `updates` is 6, expected 5 as in `data`",
        ),
        Case(
            "a length of tuples that is unknown fits no rank",
            nd("[2, 7, 3]", "[2, 1, k]", "[2]"),
            at=["cache"],
            says="`updates` has rank 1, expected 2 to 4",
        ),
        Case("whole tuples", nd("[2, 7, 3]", "[2, 1, 3]", "[2, 1]")),
        Case("one component", nd("[7, 2, 5]", "[3, 1]", "[3, 2, 5]")),
        Case("names beside numbers", nd("[b, 7, h, 5]", "[b, l, 2]", "[2, 1, 3, d]")),
        Case("a length that is unknown", nd("[2, 7, 3]", "[2, 1, k]", "[2, 1, 3]")),
        Case("nothing to write", nd("[2, 7, 3]", "[0, 2]", "[0, 3]")),
        Case("an unknown rank", nd("[2, 7, 3]", "[2, 1, 2]", "[]")),
        Case("unknown data", nd("[]", "[2, 1, 2]", "[4]")),
    ]
)
def test_scatternd_rank(case: Case) -> None:
    check_case("KV201", case)


@cases(
    [
        Case(
            "indices that were not expanded",
            elements("[2, 3, 7, 5]", "[2, 3, 1, 1]", "[2, 3, 1, 5]"),
            at=["cache"],
            says="dimension 3 of `updates` is 5, expected 1 as in `indices`",
        ),
        Case(
            "a list of positions",
            elements("[2, 3, 7, 5]", "[4]", "[2, 3, 4, 5]"),
            at=["cache"],
            says="`indices` has rank 1, expected 4 as `data`",
        ),
        Case(
            "updates of another rank",
            elements("[2, 3, 7, 5]", "[2, 3, 1, 5]", "[2, 3, 5]"),
            at=["cache"],
            says="`updates` has rank 3, expected 4",
        ),
        Case(
            "the rank of the data is unknown",
            elements("[]", "[2, 3, 1]", "[2, 3]"),
            at=["cache"],
            says="`updates` has rank 2, expected 3 as `indices`",
        ),
        Case(
            "an axis outside the rank",
            elements("[2, 3, 7, 5]", "[2, 3, 1, 5]", "[2, 3, 1, 5]", axis=4),
            at=["cache"],
            says="`axis` is 4, expected -4 to 3",
        ),
        Case(
            "more heads than the data has",
            elements("[2, 3, 7, 5]", "[2, 4, 1, 5]", "[2, 4, 1, 5]"),
            at=["cache"],
            says="dimension 1 of `indices` is 4, `data` has 3",
        ),
        Case("the same shape", elements("[2, 3, 7, 5]", "[2, 3, 1, 5]", "[2, 3, 1, 5]")),
        Case("fewer heads than the data has", elements("[2, 3, 7]", "[2, 2, 1]", "[2, 2, 1]")),
        Case("more rows than the data has", elements("[2, 3, 7]", "[2, 3, 9]", "[2, 3, 9]")),
        Case("names", elements("[b, h, s]", "[c, h, l]", "[2, 3, 1]")),
        Case("a negative axis", elements("[2, 3, 7]", "[2, 3, 9]", "[2, 3, 9]", axis=-1)),
    ]
)
def test_scatterelements_shape(case: Case) -> None:
    check_case("KV202", case)


def reducing(how: str | None) -> str:
    attributes = f'reduction: string = "{how}"' if how else ""
    return scatter("ScatterND", "float[7, 5]", "int64[3, 1]", "float[3, 5]", attributes)


@cases(
    [
        Case(
            "the default written out",
            reducing("none"),
            at=["cache"],
            says='has the attribute `reduction`="none", which tensorrt 10.1 refuses',
            targets=["tensorrt@10.1"],
        ),
        Case("a sum", reducing("add"), at=["cache"], targets=["tensorrt@8.6"]),
        Case(
            "10.2 has the limits of 10.1", reducing("none"), at=["cache"], targets=["tensorrt@10.2"]
        ),
        Case("10.9 takes it", reducing("none"), targets=["tensorrt@10.9"]),
        Case("10.14 takes it", reducing("none"), targets=["tensorrt@10.14"]),
        Case("11.0 takes it", reducing("none"), targets=["tensorrt@11.0"]),
        Case("the default left out", reducing(None), targets=["tensorrt@10.0"]),
        Case("another runtime", reducing("none"), targets=["onnxruntime@1.20"]),
        Case("no target", reducing("none")),
        Case(
            "ScatterElements",
            reducing("none").replace("ScatterND", "ScatterElements"),
            targets=["tensorrt@10.0"],
        ),
    ]
)
def test_scatternd_reduction_attr_trt(case: Case) -> None:
    check_case("KV205", case)


@pytest.mark.parametrize(("how", "is_fixed"), [("none", True), ("add", False)])
def test_only_the_default_is_removed(how: str, is_fixed: bool) -> None:
    model = deserialize(Case("", reducing(how)).message().SerializeToString())
    (finding,) = lint(model, [RULES["KV205"]], [find_target("tensorrt@10.0")])
    assert (finding.fix is not None) == is_fixed
    if finding.fix is not None:
        finding.fix.apply()
        assert not model.graph[0].attributes


def typed(op: str, dtype: str, opset: int, indices: str = "int64[3, 5]") -> str:
    return scatter(op, f"{dtype}[7, 5]", indices, f"{dtype}[3, 5]", opset=opset)


@cases(
    [
        Case(
            "bfloat16 at opset 11",
            typed("ScatterElements", "bfloat16", 11),
            at=["cache"],
            says="`past` is bfloat16, which `ScatterElements` does not take at opset 11, only from "
            "opset 13 on",
        ),
        Case(
            "8-bit floats at any opset",
            typed("ScatterND", "float8e5m2", 22, "int64[3, 1]"),
            at=["cache"],
            says="`past` is float8e5m2, which `ScatterND` does not take at opset 22",
        ),
        Case("4-bit integers", typed("ScatterElements", "int4", 24), at=["cache"]),
        Case("bfloat16 at opset 13", typed("ScatterElements", "bfloat16", 13)),
        Case("half at opset 11", typed("ScatterND", "float16", 11, "int64[3, 1]")),
        Case("strings", typed("ScatterND", "string", 11, "int64[3, 1]")),
        Case("indices are for another rule", typed("ScatterND", "float", 18, "int32[3, 1]")),
    ]
)
def test_scatter_dtype_unsupported(case: Case) -> None:
    check_case("KV206", case)


ROWS = """
    <ir_version: 10, opset_import: ["": 18]>
    decoder (float[b, 16, 5] past, float[b, l, 5] update, int64[b] start, int64[l] free)
        => (float[b, 16, 5] present)
        <int64 zero = {0}, int64 one = {1}, int64 size = {16}, int64[1] last = {-1},
         int64[1] second = {1}, int64[2] ends = {0, 2}> {
        length = Shape <start: int = 1, end: int = 2> (update)
        many = Squeeze (length)
        count = Range (zero, many, one)
        first = Unsqueeze (start, second)
        sum = Add (first, count)
        turned = Mod (sum, size)
        alone = Unsqueeze (free, ends)
        rows = Unsqueeze (%s, last)
        shape = Shape (update)
        index = Expand (%s, shape)
        [cache] present = ScatterElements <axis: int = 1> (past, index, update)
    }
"""


@pytest.mark.long
@cases(
    [
        Case(
            "from a start of each row on",
            ROWS % ("sum", "rows"),
            at=["cache"],
            says="writes rows that count up from `start` along axis 1 of `past` (linear mode)",
        ),
        Case(
            "a runtime with TensorScatter",
            ROWS % ("sum", "rows"),
            at=["cache"],
            targets=["onnxruntime@1.25"],
        ),
        Case("a runtime without", ROWS % ("sum", "rows"), targets=["onnxruntime@1.24"]),
        Case("round and round", ROWS % ("turned", "rows"), at=["cache"], says="(circular mode)"),
        Case("free positions", ROWS % ("sum", "alone")),
        Case(
            "a sum",
            (ROWS % ("sum", "rows")).replace(
                "axis: int = 1> (past", 'axis: int = 1, reduction: string = "add"> (past'
            ),
        ),
        Case(
            "no cache leaves the model",
            (ROWS % ("sum", "rows"))
            .replace("[cache] present =", "[cache] other =")
            .replace("(past, index, update)", "(past, index, update)\n present = Neg (other)"),
        ),
    ]
)
def test_raisable_pattern(case: Case) -> None:
    check_case("KV207", case)
