"""KV002, KV004 to KV007, KV012, KV013: ranks, dimensions and types of a TensorScatter."""

from __future__ import annotations

import pytest

from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from tests.lint.cases import Case, cases, check_case, lint
from tests.lint.rules.scatters import tensor_scatter

IN_A_BODY = """
    <ir_version: 10, opset_import: ["": 24]>
    decoder (bool flag, float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, float[2, 4, 1, 5] wide)
        => (float[2, 3, 7, 5] present) {
        [branch] present = If (flag) <
            then_branch = one () => (float[2, 3, 7, 5] a) {
                [inner] a = TensorScatter <axis: int = %s> (past, %s)
            },
            else_branch = two () => (float[2, 3, 7, 5] b) { b = Identity (past) }
        >
    }
"""
IN_A_FUNCTION = """
    <ir_version: 10, opset_import: ["": 24, "local": 1]>
    decoder (float[2, 3, 7, 5] past, float[2, 4, 1, 5] update) => (float[2, 3, 7, 5] present) {
        present = local.write (past, update)
    }
    <opset_import: ["": %s], domain: "local"> write (a, b) => (c) {
        [inner] c = TensorScatter <axis: int = 2> (a, b)
    }
"""
COMPUTED = """
    <ir_version: 10, opset_import: ["": 24]>
    decoder (int64[rows, 3] marks, int64[rows] start) => (int64[] present) {
        one = Constant <value_ints: ints = [1]> ()
        width = Constant <value_ints: ints = [7]> ()
        rows = Shape <start: int = 0, end: int = 1> (marks)
        more = Add (rows, one)
        size = Concat <axis: int = 0> (%s, width)
        past = ConstantOfShape <value: tensor = int64[1] {0}> (size)
        [cache] present = TensorScatter <axis: int = 1> (past, marks, start)
    }
"""


@cases(
    [
        Case(
            "axis 4 of rank 4",
            tensor_scatter(attributes="axis: int = 4"),
            at=["cache"],
            says="`axis` is 4, but `past` has rank 4: expected -4 to 3",
        ),
        Case("axis -5 of rank 4", tensor_scatter(attributes="axis: int = -5"), at=["cache"]),
        Case(
            "the rank of the update will do",
            tensor_scatter(past="float[]", attributes="axis: int = 4"),
            at=["cache"],
            says="`update` has rank 4",
        ),
        Case(
            "a bad mode does not hide a bad axis",
            tensor_scatter(attributes='axis: int = 9, mode: string = "ring"'),
            at=["cache"],
        ),
        Case("in the body of an If", IN_A_BODY % (7, "update"), at=["inner"]),
        Case("axis 3 is the last", tensor_scatter(attributes="axis: int = 3")),
        Case("axis -3 is no batch", tensor_scatter(attributes="axis: int = -3")),
        Case("axis 0 is for another rule", tensor_scatter(attributes="axis: int = 0")),
        Case(
            "nothing is known of the rank",
            tensor_scatter(past="float[]", update="float[]", attributes="axis: int = 9"),
        ),
    ]
)
def test_axis_out_of_range(case: Case) -> None:
    check_case("KV002", case)


@cases(
    [
        Case(
            "an update of heads and sizes in one",
            tensor_scatter(update="float[2, 1, 15]"),
            at=["cache"],
            says="`update` has rank 3 [2, 1, 15], `past` has rank 4 [2, 3, 7, 5]",
        ),
        Case(
            "symbols do not matter",
            tensor_scatter(past="float[b, h, s, d]", update="float[b, l, e]", start="int64[b]"),
            at=["cache"],
            says="`update` has rank 3 [b, l, e]",
        ),
        Case(
            "a cache without a sequence",
            tensor_scatter(past="float[7]", update="float[7]", attributes="axis: int = 1"),
            at=["cache"],
            says="`past` has rank 1, expected at least 2",
        ),
        Case(
            "rank 2 is enough", tensor_scatter("float[2, 7]", "float[2, 1]", "int64[2]", "axis=1")
        ),
        Case("rank 5", tensor_scatter("float[2, 3, 2, 7, 5]", "float[2, 3, 2, 1, 5]")),
        Case("the rank of the past is unknown", tensor_scatter(past="float[]")),
    ]
)
def test_rank_mismatch(case: Case) -> None:
    check_case("KV004", case)


@cases(
    [
        Case(
            "another number of heads",
            tensor_scatter(update="float[2, 4, 1, 5]"),
            at=["cache"],
            says="`update` [2, 4, 1, 5] has size 4 along dimension 1, not 3 as `past` "
            "[2, 3, 7, 5]; only dimension 2",
        ),
        Case(
            "layouts mixed up differ twice",
            tensor_scatter(update="float[2, 1, 3, 5]"),
            at=["cache"],
            says="has size 1 along dimension 1, not 3 as",
        ),
        Case(
            "axis names the size of a head",
            tensor_scatter(attributes="axis: int = -1"),
            at=["cache"],
            says="has size 1 along dimension 2, not 7 as",
        ),
        Case(
            "another batch",
            tensor_scatter(update="float[4, 3, 1, 5]"),
            at=["cache"],
            says="size 4 along dimension 0, not 2 as",
        ),
        Case(
            "two names differ and two numbers",
            tensor_scatter("float[b, 3, s, 5]", "float[b2, 3, l, 8]", "int64[b]"),
            at=["cache"],
            says="has size 8 along dimension 3, not 5 as",
        ),
        Case(
            "a computed batch that is one larger",
            COMPUTED % "more",
            at=["cache"],
            says="has size rows along dimension 0, not rows + 1 as",
        ),
        Case("a computed batch that is the same", COMPUTED % "rows"),
        Case("in the body of an If", IN_A_BODY % (2, "wide"), at=["inner"], says="size 4"),
        Case("two names may be one size", tensor_scatter("float[b, 3, 7, 5]", "float[c, 3, 1, 5]")),
        Case("a name may be any number", tensor_scatter("float[2, h, 7, 5]")),
        Case(
            "more rows than the cache are for another rule", tensor_scatter(update="float[2,3,9,5]")
        ),
        Case("ranks that differ are for another rule", tensor_scatter(update="float[2, 1, 15]")),
        Case(
            "without an axis nothing is off the axis",
            tensor_scatter(update="float[2, 4, 1, 5]", attributes="axis: int = 9"),
        ),
        Case("shapes inside a function are unknown", IN_A_FUNCTION % 24),
    ]
)
def test_non_axis_dim_mismatch(case: Case) -> None:
    check_case("KV005", case)


@cases(
    [
        Case(
            "a half cache and a float update",
            tensor_scatter(past="float16[2, 3, 7, 5]"),
            at=["cache"],
            says="`past` is float16, `update` is float32, `present` is float16",
        ),
        Case(
            "a float cache and a brain update",
            tensor_scatter(update="bfloat16[2, 3, 1, 5]"),
            at=["cache"],
            says="`update` is bfloat16",
        ),
        Case(
            "a result that is declared otherwise",
            tensor_scatter(present="float16[2, 3, 7, 5]"),
            at=["cache"],
            says="`present` is float16",
        ),
        Case(
            "the type of a Cast",
            tensor_scatter(
                update="float[2, 3, 1, 5]",
                before="half = Cast <to: int = 10> (update)",
            ).replace("past, update, start)\n        }", "past, half, start)\n        }"),
            at=["cache"],
            says="`half` is float16",
        ),
        Case(
            "8-bit floats are a type of their own",
            tensor_scatter("float8e4m3fn[2, 3, 7, 5]", "float8e4m3fn[2, 3, 1, 5]"),
        ),
        Case("starts of another type are for another rule", tensor_scatter(start="int32[2]")),
        Case("types inside a function are unknown", IN_A_FUNCTION % 24),
    ]
)
def test_dtype_mismatch(case: Case) -> None:
    check_case("KV006", case)


@cases(
    [
        Case(
            "one row too many",
            tensor_scatter(update="float[2, 3, 8, 5]"),
            at=["cache"],
            says="`update` has 8 rows along axis 2, `past` has room for 7",
        ),
        Case(
            "circular mode has no more room",
            tensor_scatter(
                update="float[2, 3, 8, 5]", attributes='axis: int = 2, mode: string = "circular"'
            ),
            at=["cache"],
        ),
        Case(
            "the batch may be a name",
            tensor_scatter("float[b, 3, 7, 5]", "float[b, 3, 9, 5]", "int64[b]"),
            at=["cache"],
            says="9 rows",
        ),
        Case(
            "the default axis is the last but one",
            tensor_scatter(update="float[2, 3, 8, 5]", attributes='mode: string = "linear"'),
            at=["cache"],
        ),
        Case("as many rows as the cache has", tensor_scatter(update="float[2, 3, 7, 5]")),
        Case("no row at all", tensor_scatter(update="float[2, 3, 0, 5]")),
        Case("a name beside a number", tensor_scatter(update="float[2, 3, l, 5]")),
        Case("two names", tensor_scatter("float[2, 3, s, 5]", "float[2, 3, l, 5]")),
        Case("rows along another axis", tensor_scatter(update="float[2, 8, 1, 5]")),
        Case(
            "an illegal axis", tensor_scatter(update="float[2,3,8,5]", attributes="axis: int = 0")
        ),
    ]
)
def test_update_longer_than_cache(case: Case) -> None:
    check_case("KV007", case)


@pytest.mark.long
@cases(
    [
        Case(
            "opset 23",
            tensor_scatter(opset=23),
            at=["cache"],
            says="`TensorScatter` came with opset 24, the model imports opset 23",
        ),
        Case("opset 18", tensor_scatter(opset=18), at=["cache"], says="opset 18"),
        Case(
            "a function of an older opset",
            IN_A_FUNCTION % 23,
            at=["inner"],
            says="the function imports opset 23",
        ),
        Case(
            "in the body of an If", (IN_A_BODY % (2, "update")).replace("24]", "22]"), at=["inner"]
        ),
        Case("opset 24", tensor_scatter()),
        Case("opset 25", tensor_scatter(opset=25)),
        Case(
            "an operator of that name in another domain",
            tensor_scatter(opset=18)
            .replace('["": 18]', '["": 18, "own": 1]')
            .replace("= TensorScatter", "= own.TensorScatter"),
        ),
    ]
)
def test_opset_too_old(case: Case) -> None:
    check_case("KV012", case)


@cases(
    [
        Case(
            "one row more",
            tensor_scatter(present="float[2, 3, 8, 5]"),
            at=["cache"],
            says="`present` is declared float32[2, 3, 8, 5], `past` is float32[2, 3, 7, 5]",
        ),
        Case("another rank", tensor_scatter(present="float[2, 21, 5]"), at=["cache"]),
        Case(
            "another type",
            tensor_scatter(present="float16[2, 3, 7, 5]"),
            at=["cache"],
            says="declared float16[2, 3, 7, 5]",
        ),
        Case(
            "a number where both have one",
            tensor_scatter(
                "float[b, 3, 7, 5]", "float[b, 3, 1, 5]", "int64[b]", present="float[c, 3, s, 6]"
            ),
            at=["cache"],
        ),
        Case("the same", tensor_scatter()),
        Case("another name", tensor_scatter("float[b, 3, s, 5]", present="float[c, 3, t, 5]")),
        Case("a name for a number", tensor_scatter(present="float[2, 3, s, 5]")),
        Case("nothing is declared", tensor_scatter(present="float[]")),
    ]
)
def test_present_decl_mismatch(case: Case) -> None:
    check_case("KV013", case)


@pytest.mark.parametrize(
    "declared", ["float[2, 3, 8, 5]", "float[2, 21, 5]", "float16[2, 3, 7, 5]"]
)
def test_the_fix_declares_the_result_as_the_cache(declared: str) -> None:
    model = deserialize(Case("", tensor_scatter(present=declared)).message().SerializeToString())
    (finding,) = lint(model, [RULES["KV013"]])
    assert finding.fix is not None
    finding.fix.apply()
    assert str(model.graph.outputs[0].shape) == "[2,3,7,5]"
    assert model.graph.outputs[0].dtype == model.graph.inputs[0].dtype
    assert lint(model, [RULES["KV013"], RULES["KV006"]]) == []


def test_every_rule_speaks_about_one_node() -> None:
    text = tensor_scatter(
        "float16[2, 3, 7, 5]",
        "float[2, 4, 8, 5]",
        "int32[3]",
        'axis: int = 2, mode: string = "ring"',
        present="float16[2, 3, 9, 5]",
    )
    model = deserialize(Case("", text).message().SerializeToString())
    rules = [rule for code, rule in RULES.items() if code.startswith(("KV0", "ON6"))]
    found = [f.code for f in lint(model, rules) if f.severity == "error"]
    assert found == ["KV003", "KV005", "KV006", "KV007", "KV010", "KV011", "KV013"]
