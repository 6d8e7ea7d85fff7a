"""What can be granted, and what is no assumption."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.rewrite.raising.stage import Assumptions, dims_to_run
from tests.grids import each

_MODEL = """<ir_version: 8, opset_import: ["": 18]>
    decoder (float[batch,7,5] cache, int64[s28] positions) => (float[batch,7,5] same, int64[s28] p)
    { same = Identity (cache) p = Identity (positions) }"""


@each(
    ("texts", "message"),
    [
        pytest.param(["contigous"], "is no assumption", id="a misspelt kind"),
        pytest.param(["contiguous:"], "is no assumption", id="a colon without a value"),
        pytest.param(["same-dim"], "expected `same-dim:A=B`", id="no dimensions"),
        pytest.param(["same-dim:a="], "expected `same-dim:A=B`", id="one dimension"),
        pytest.param(["same-dim:a=2", "same-dim:a=3"], "contradict", id="two sizes for one name"),
    ],
)
def test_what_is_no_assumption_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Assumptions.parse(texts)


def test_the_help_for_an_unknown_kind_names_all_kinds() -> None:
    with pytest.raises(UsageError) as caught:
        Assumptions.parse(["hope"])
    assert caught.value.help == (
        "use one of `contiguous`, `in-range`, `finite`, `covers-past`, `rotated-rows`, `unpadded`, "
        "`same-dim`; `kvtool raise --help` has their forms"
    )


@pytest.mark.parametrize(
    ("text", "help"),
    [
        pytest.param("contiguous:position", "did you mean `positions`?", id="a value"),
        pytest.param("same-dim:batch=s29", "did you mean `s28`?", id="a dimension"),
    ],
)
def test_names_that_the_model_lacks_are_refused(text: str, help: str) -> None:
    model = ir.from_proto(onnx.parser.parse_model(_MODEL))
    with pytest.raises(UsageError, match="no") as caught:
        Assumptions.parse([text]).check(model)
    assert caught.value.help == help


def test_without_a_name_inputs_are_meant_and_not_what_the_graph_computes() -> None:
    model = ir.from_proto(onnx.parser.parse_model(_MODEL))
    given, made = model.graph.inputs[1], model.graph.outputs[1]
    bare, named = Assumptions.parse(["contiguous"]), Assumptions.parse(["contiguous:p"])
    assert (bare.grants("contiguous", given), bare.grants("contiguous", made)) == (
        "contiguous",
        None,
    )
    assert (named.grants("contiguous", given), named.grants("contiguous", made)) == (
        None,
        "contiguous:p",
    )
    assert bare.grants("in-range", given) is None


@each(
    ("pairs", "chosen", "expected"),
    [
        pytest.param([("a", "b"), ("b", "c")], {}, {"a": 2, "b": 2, "c": 2}, id="names"),
        pytest.param([("a", 1), ("b", "a")], {}, {"a": 1, "b": 1}, id="a number"),
        pytest.param([("a", "b")], {"b": 5}, {"a": 5, "b": 5}, id="what the user chose"),
        pytest.param([("a", "a"), ("b", 3), ("b", 4)], {}, {}, id="a contradiction"),
    ],
)
def test_sizes_that_must_be_equal_are_run_equal(
    pairs: list, chosen: dict[str, int], expected: dict[str, int]
) -> None:
    assert dims_to_run(pairs, chosen) == expected
