"""KV008 to KV011: the starts of a TensorScatter."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest

from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize, serialize
from tests.lint.cases import Case, cases, check_case, lint
from tests.lint.rules.scatters import tensor_scatter

CIRCULAR = 'axis: int = 2, mode: string = "circular"'


def constant(numbers: str, rows: int = 3, attributes: str = "axis: int = 2", size: int = 16) -> str:
    """Return a cache of 16 rows and a batch of two, written from constant starts."""
    return tensor_scatter(
        f"float[2, 4, {size}, 5]",
        f"float[2, 4, {rows}, 5]",
        None,
        attributes,
        before=f"start = Constant <value_ints: ints = [{numbers}]> ()",
    )


def computed(
    nodes: str, past: str = "float[2, 4, 16, 5]", update: str = "float[2, 4, 3, 5]"
) -> str:
    """Return a model whose `start` comes out of nodes with the inputs `w` and `n`."""
    return tensor_scatter(
        past, update, None, before=nodes, inputs="int64[2] w, int64 n, float[m, 6] other"
    )


ABOVE = """
    low = Constant <value_ints: ints = [{}]> ()
    start = Max (w, low)
"""
CLIPPED = """
    least = Constant <value_int: int = {}> ()
    most = Constant <value_int: int = {}> ()
    start = Clip (w, least, most)
"""
END_OF_THE_CACHE = """
    all = Shape <start: int = 2, end: int = 3> (past)
    two = Constant <value_ints: ints = [2]> ()
    start = Expand (all, two)
"""
ROOM = """
    all = Shape <start: int = 2, end: int = 3> (past)
    length = Shape <start: int = 2, end: int = 3> (update)
    free = Sub (all, length)
    two = Constant <value_ints: ints = [2]> ()
    start = Expand (free, two)
"""
COUNTING = """
    zero = Constant <value_int: int = 0> ()
    two = Constant <value_int: int = 2> ()
    ten = Constant <value_int: int = {}> ()
    count = Range (zero, two, ten_step)
    start = Mul (count, ten)
""".replace("ten_step", "one").replace(
    "    count", "    one = Constant <value_int: int = 1> ()\n    count"
)
OVERRIDDEN = tensor_scatter(
    "float[2, 4, 16, 5]",
    "float[2, 4, 3, 5]",
    "int64[2]",
    initializers="int64[2] start = {14, 14}",
)
IN_A_FUNCTION = """
    <ir_version: 10, opset_import: ["": 24, "local": 1]>
    decoder (float[2, 4, 16, 5] past, float[2, 4, 3, 5] update) => (float[2, 4, 16, 5] present) {
        present = local.write (past, update)
    }
    <opset_import: ["": 24], domain: "local"> write (a, b) => (c) {
        start = Constant <value_ints: ints = [%s]> ()
        [inner] c = TensorScatter <axis: int = 2> (a, b, start)
    }
"""


@pytest.mark.long
@cases(
    [
        Case(
            "one row too far",
            constant("0, 14"),
            at=["cache"],
            says="writes rows 14 to 16 along axis 2 of `past` (size 16): "
            "write_indices[1]=14 + sequence_length=3 > 16",
        ),
        Case(
            "one token past the end",
            constant("16, 16", rows=1),
            at=["cache"],
            says="writes row 16 along axis 2",
        ),
        Case(
            "an initializer",
            tensor_scatter(
                "float[2, 4, 16, 5]",
                "float[2, 4, 3, 5]",
                None,
                initializers="int64[2] start = {14, 0}",
            ),
            at=["cache"],
            says="write_indices[0]=14",
        ),
        Case("folded", computed(COUNTING.format(14)), at=["cache"], says="write_indices[1]=14"),
        Case("never below 14", computed(ABOVE.format("14, 14")), at=["cache"], says="> 16"),
        Case(
            "the second row is never below 14",
            computed(ABOVE.format("3, 14")),
            at=["cache"],
            says="write_indices[1]=",
        ),
        Case("clipped to 14 and above", computed(CLIPPED.format(14, 15)), at=["cache"]),
        Case("from the end of the cache on", computed(END_OF_THE_CACHE), at=["cache"]),
        Case(
            "from the end of a cache of any size",
            computed(END_OF_THE_CACHE, "float[2, 4, s, 5]"),
            at=["cache"],
            says="writes rows s to s + 2 along axis 2 of `past` (size s)",
        ),
        Case("the last row that fits", constant("13, 13")),
        Case("the whole cache", constant("0, 0", rows=16)),
        Case("circular mode wraps", constant("0, 14", attributes=CIRCULAR)),
        Case("a start of the caller", tensor_scatter("float[2, 4, 16, 5]", "float[2, 4, 3, 5]")),
        Case("never below 13", computed(ABOVE.format("13, 13"))),
        Case("clipped to 13 or to 14", computed(CLIPPED.format(13, 14))),
        Case("as far as there is room", computed(ROOM, "float[2, 4, s, 5]", "float[2, 4, l, 5]")),
        Case(
            "the end of a cache, and nothing to write perhaps",
            computed(END_OF_THE_CACHE, "float[2, 4, s, 5]", "float[2, 4, l, 5]"),
        ),
        Case("a size that is a name", computed(ABOVE.format("99, 99"), "float[2, 4, s, 5]")),
        Case("an initializer that the caller may replace", OVERRIDDEN),
        Case("an update longer than the cache is for another rule", constant("1, 1", rows=17)),
        Case("a bad mode", constant("14, 14", attributes='axis: int = 2, mode: string = "ring"')),
        Case("sizes inside a function are unknown", IN_A_FUNCTION % "14, 14"),
    ]
)
def test_linear_overflow(case: Case) -> None:
    check_case("KV008", case)


@cases(
    [
        Case(
            "the second row starts at -3",
            constant("6, -3"),
            at=["cache"],
            says="starts at a negative row of `past`: write_indices[1]=-3, expected 0 or more",
        ),
        Case(
            "circular mode only warns",
            constant("-1, 0", attributes=CIRCULAR),
            at=["cache"],
            severity="warning",
        ),
        Case("clipped below zero", computed(CLIPPED.format(-4, -1)), at=["cache"]),
        Case("inside a function", IN_A_FUNCTION % "-2, 3", at=["inner"], says="[0]=-2"),
        Case("zero", constant("0, 0")),
        Case("clipped to zero", computed(CLIPPED.format(-4, 0))),
        Case("a start of the caller", tensor_scatter()),
        Case("no starts at all", tensor_scatter(start=None).replace("update, start)", "update)")),
    ]
)
def test_negative_write_index(case: Case) -> None:
    check_case("KV009", case)


@cases(
    [
        Case("int32", tensor_scatter(start="int32[2]"), at=["cache"], says="`start` is int32"),
        Case("float", tensor_scatter(start="float[2]"), at=["cache"], says="`start` is float32"),
        Case(
            "a constant",
            tensor_scatter(start=None, initializers="int32[2] start = {1, 2}"),
            at=["cache"],
        ),
        Case("int64", tensor_scatter()),
        Case("inside a function the type is unknown", IN_A_FUNCTION % "1, 2"),
    ]
)
def test_write_indices_dtype(case: Case) -> None:
    check_case("KV010", case)


@cases(
    [
        Case(
            "a column",
            tensor_scatter(start="int64[2, 1]"),
            at=["cache"],
            says="`start` [2, 1] has rank 2, expected rank 1 and batch_size=2 elements",
        ),
        Case("one number for all", tensor_scatter(start="int64"), at=["cache"], says="rank 0"),
        Case(
            "one number in a list",
            tensor_scatter(start="int64[1]"),
            at=["cache"],
            says="`start` has 1 elements, `past` has batch_size=2",
        ),
        Case(
            "rank 2 of any size",
            tensor_scatter("float[b, 3, 7, 5]", "float[b, 3, 1, 5]", "int64[b, n]"),
            at=["cache"],
            says="batch_size=b",
        ),
        Case(
            "the batch of the update will do",
            tensor_scatter(past="float[]", start="int64[3]"),
            at=["cache"],
            says="has 3 elements",
        ),
        Case("one for each row", tensor_scatter()),
        Case("a name beside a number", tensor_scatter(start="int64[n]")),
        Case("two names", tensor_scatter("float[b, 3, 7, 5]", "float[b, 3, 1, 5]", "int64[n]")),
        Case("an unknown rank", tensor_scatter(start="int64[]")),
        Case("absent", tensor_scatter(start=None).replace("update, start)", 'update, "")')),
    ]
)
def test_write_indices_shape(case: Case) -> None:
    check_case("KV011", case)


def two_layers(start: str, numbers: str = "int32") -> str:
    return f"""
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 7, 5] a, float[2, 7, 5] b, float[2, 1, 5] update, {numbers}{start} start)
            => (float[2, 7, 5] c, float[2, 7, 5] d) {{
            c = TensorScatter <axis: int = 1> (a, update, start)
            d = TensorScatter <axis: int = 1> (b, update, start)
        }}
    """


@pytest.mark.parametrize(
    ("text", "given", "added"),
    [
        pytest.param(two_layers("[2]"), np.int32([3, 5]), ["Cast"], id="one Cast serves both"),
        pytest.param(
            two_layers("[2, 1]", "int64"),
            np.int64([[3], [5]]),
            ["Constant", "Reshape"],
            id="one Reshape serves both",
        ),
        pytest.param(
            two_layers("[2, 1]"),
            np.int32([[3], [5]]),
            ["Cast", "Constant", "Reshape"],
            id="type and shape are fixed together",
        ),
    ],
)
def test_the_fixes_of_starts_make_the_model_right(
    text: str, given: np.ndarray, added: list[str]
) -> None:
    model = deserialize(Case("", text).message().SerializeToString())
    rules = [RULES["KV010"], RULES["KV011"]]
    for finding in lint(model, rules):
        assert finding.fix is not None and finding.fix.applicability == "safe"
        finding.fix.apply()
    every = [rule for code, rule in RULES.items() if code.startswith(("KV0", "ON6"))]
    assert lint(model, every) == []
    operators = [node.op_type for node in model.graph]
    assert sorted(operators) == sorted([*added, "TensorScatter", "TensorScatter"])
    message = onnx.load_from_string(serialize(model))
    onnx.checker.check_model(message, full_check=True)
    update = np.arange(10, dtype=np.float32).reshape(2, 1, 5) + 1
    empty = np.zeros((2, 7, 5), np.float32)
    feeds = {"a": empty, "b": empty, "update": update, "start": given}
    expected = empty.copy()
    expected[0, 3], expected[1, 5] = update[0, 0], update[1, 0]
    for result in onnx.reference.ReferenceEvaluator(message).run(None, feeds):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("KV010", tensor_scatter(start="float[2]")),
        ("KV011", tensor_scatter(start="int64[1]")),
        ("KV011", tensor_scatter(start="int64")),
        ("KV011", tensor_scatter("float[b, 3, 7, 5]", "float[b, 3, 1, 5]", "int64[n, 1]")),
    ],
    ids=[
        "a cast of floats may change numbers",
        "one start may be meant for all rows",
        "one number is no batch of two",
        "two names may differ",
    ],
)
def test_a_fix_that_would_guess_is_not_offered(code: str, text: str) -> None:
    model = deserialize(Case("", text).message().SerializeToString())
    (finding,) = lint(model, [RULES[code]])
    assert finding.fix is None
