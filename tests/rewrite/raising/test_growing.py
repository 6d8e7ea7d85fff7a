"""Caches that grow become caches of a fixed capacity, and every output stays as it was."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.symbolic.dimensions import dims_of, names_in
from tests.grids import rest, thinned
from tests.rewrite.raising.brute_force import dead_nodes
from tests.rewrite.raising.growing_steps import ROWS, differences

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


@dataclass(frozen=True, slots=True)
class Real:
    """What is to be found in a model.

    Attributes:
        count: Caches that grow.
        position: The end of the sentence that says where a step begins.
        added: The inputs of the result that the source lacks.
        assume: What is granted.
    """

    count: int
    position: str
    added: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()


ADDED = "the new input `past_length` says how many tokens came before"
DECLARED = "is `past_sequence_length + sequence_length` long, by its declaration"
COVERS = ("covers-past:attention_mask",)
GRANTED = "`attention_mask` is as long as the past and the new tokens"
REAL = {
    "growing/llama__optimum": Real(4, DECLARED),
    "growing/llama_dynamic__dynamo_op18": Real(4, ADDED, ("past_length",)),
    "growing/t5_decoder_merged__optimum": Real(4, ADDED, ("past_length",)),
    "models/concat/gpt2_dynamic__ts_op17": Real(4, ADDED, ("past_length",)),
    "with a mask/growing/llama_dynamic__dynamo_op18": Real(4, GRANTED, (), COVERS),
    "with a mask/models/concat/gpt2_dynamic__ts_op17": Real(4, GRANTED, (), COVERS),
}


def read(name: str) -> onnx.ModelProto:
    return onnx.load(FIXTURES / f"{name.removeprefix('with a mask/')}.onnx")


def raised(
    source: onnx.ModelProto, *, capacity: int | str = ROWS, **options: Any
) -> tuple[onnx.ModelProto, kv.RaiseReport]:
    result, report = kv.raise_(
        source, capacity=capacity, attention="keep", partial=True, verify=False, **options
    )
    found = ir.to_proto(result)
    onnx.checker.check_model(found, full_check=True)
    assert not dead_nodes(found)
    return found, report


@pytest.mark.long
@pytest.mark.parametrize("name", thinned([*REAL], 6))
def test_a_real_decoder_gives_the_same_with_a_fixed_capacity(name: str) -> None:
    source, expected = read(name), REAL[name]
    result, report = raised(source, assume=expected.assume)
    growing = [done for done in report.raised if done.pattern == "growing"]
    assert len(growing) == len([c for c in report.caches if c.source == "concat"]) == expected.count
    assert not report.refused
    assert all(any(text.endswith(expected.position) for text in done.proof) for done in growing)
    assert all(done.assumed == expected.assume for done in growing)
    assert tuple(added.name for added in report.inputs_added) == expected.added
    for batch in (1, 3):
        assert not differences(source, result, ROWS, batch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["growing/llama__optimum", "growing/t5_decoder_merged__optimum"])
def test_the_result_is_held_against_the_source(name: str) -> None:
    _, report = kv.raise_(read(name), capacity=ROWS, attention="keep", verify=True)
    found = report.verification
    assert found.status == "equal"
    assert len(found.bit_equal) == len(read(name).graph.output)
    assert found.detail is not None and "past the capacity of 16 rows" in found.detail


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["growing/llama__optimum", *rest("growing/t5_decoder_merged__optimum")]
)
def test_names_order_and_types_stay(name: str) -> None:
    source = read(name)
    result, report = raised(source)
    added = [one.name for one in report.inputs_added]
    for before, after in (
        ([v.name for v in source.graph.input] + added, [v.name for v in result.graph.input]),
        ([v.name for v in source.graph.output], [v.name for v in result.graph.output]),
    ):
        assert before == after
    caches = {name for cache in report.caches for name in (cache.past, cache.present)}
    values = {v.name: v for v in (*result.graph.input, *result.graph.output)}
    for value in (*source.graph.input, *source.graph.output):
        kept = values[value.name].type.tensor_type
        old = value.type.tensor_type
        assert kept.elem_type == old.elem_type
        for axis, (a, b) in enumerate(zip(old.shape.dim, kept.shape.dim, strict=True)):
            assert b.dim_value == ROWS if value.name in caches and axis == 2 else a == b


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_name_makes_a_dimension() -> None:
    source = read("growing/llama__optimum")
    result, report = raised(source, capacity="capacity")
    assert {cache.capacity for cache in report.caches} == {"capacity"}
    for rows in (ROWS, 30):
        assert not differences(source, result, rows, 3)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("growing/qwen2__dynamo_op18", "past_length"),
        ("growing/llama__optimum", "past_sequence_length"),
        pytest.param(
            *("growing/gpt_neox_eager__ts_op14", "past_length"), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_rows_in_use_have_a_name_that_inputs_know(name: str, length: str) -> None:
    result, _ = kv.raise_(read(name), capacity=ROWS, verify=False)
    cut = [n.outputs[0] for n in result.graph if n.op_type == "Slice" and "in_use" in str(n.name)]
    found = {dim for value in cut for dim in dims_of(value) or () if isinstance(dim, str)}
    sums = {dim for dim in found if len(names_in(dim)) > 1}
    assert len(sums) == 1
    known = {n for v in result.graph.inputs for d in dims_of(v) or () for n in names_in(d or 0)}
    assert set(names_in(sums.pop())) <= known | {length}
    if length == "past_length":
        assert length in {value.name for value in result.graph.inputs}


@pytest.mark.long
@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        pytest.param(0, "`capacity` is 0", id="no rows"),
        pytest.param("4 k", "`capacity` is `4 k`", id="neither a number nor a name"),
        pytest.param("batch_size", "names a dimension", id="a name that is taken"),
    ],
)
def test_what_no_capacity_can_be(capacity: int | str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        raised(read("growing/llama__optimum"), capacity=capacity)


HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
ONE = f"""{HEAD} g (float[B,2,S,3] new, float[B,2,P,3] past)
    => (float[B,2,T,3] present, NODES) {{
    rows = Neg (new) present = Concat <axis = 2> (past, rows) """
TWO = f"""{HEAD} g (float[B,2,S,3] new_0, float[B,2,P,3] past_0, float[B,2,S,3] new_1,
    float[B,2,Q,3] past_1) => (float[B,2,T,3] present_0, float[B,2,U,3] present_1, OUT) {{
    rows_0 = Neg (new_0) rows_1 = Neg (new_1) present_0 = Concat <axis = 2> (past_0, rows_0)
    present_1 = Concat <axis = -2> (past_1, rows_1) """

WRITTEN: dict[str, str] = {
    "whole shapes": f"""{ONE.replace("NODES", "int64[4] y, int64[2] z")}
        y = Shape (past) z = Shape <start = 1, end = 3> (past) }}""",
    "shapes of other axes": f"""{ONE.replace("NODES", "int64[2] y, int64[1] z")}
        y = Shape <end = 2> (past) z = Shape <start = -1> (past) }}""",
    "sizes taken one by one": f"""{ONE.replace("NODES", "int64 y, int64[1] z, int64 u, int64 v")}
        two = Constant <value_int = 2> () twos = Constant <value_ints = [2]> ()
        one = Constant <value_int = 1> () back = Constant <value_int = -2> ()
        shape = Shape (past) part = Shape <start = 1> (past)
        y = Gather (shape, two) z = Gather (shape, twos) u = Gather (part, one)
        v = Gather (shape, back) }}""",
    "the past through other names": f"""{HEAD} g (float[B,2,S,3] new, float[B,2,P,3] past)
        => (float[B,2,T,3] present, int64[1] y, float[B,2,T,3] z) {{
        a = Identity (past) b = Concat <axis = 2> (a) c = Cast <to = 1> (b)
        rows = Neg (new) grown = Concat <axis = 2> (c, rows) present = Identity (grown)
        y = Shape <start = 2, end = 3> (b) z = Neg (grown) }}""",
    "the present read behind a cast": f"""{HEAD} g (float[B,2,S,3] new, float[B,2,P,3] past)
        => (float[B,2,T,3] present, float[B,2,T,3] y) {{
        rows = Neg (new) grown = Concat <axis = 2> (past, rows) present = Cast <to = 1> (grown)
        y = Neg (present) }}""",
    "a present that nobody reads": f"""{ONE.replace("NODES", "float[B,2,S,3] y")}
        y = Neg (new) }}""",
    "lengths that must be equal": f"""{TWO.replace("OUT", "float[B,2,S,U] y")}
        turned = Transpose <perm = [0, 1, 3, 2]> (present_0) scores = MatMul (new_0, turned)
        y = MatMul (scores, present_1) }}""",
    "rows that come out of the length": f"""{ONE.replace("NODES", "float[B,2,T,3] y")}
        y = Neg (present) }}""",
    "a batch of one": f"""{HEAD} g (float[1,2,S,3] new, float[1,2,P,3] past)
        => (float[1,2,T,3] present, float[1,2,T,3] y) {{
        rows = Neg (new) present = Concat <axis = 2> (past, rows) y = Neg (present) }}""",
    "steps of an unknown length": f"""{HEAD} g (float[B,2,S,3] new_x, float[B,2,P,3] past)
        => (float[B,2,T,3] present, float[B,2,T,3] y) {{
        most = Constant <value_ints = [9223372036854775807]> ()
        zero = Constant <value_ints = [0]> () two = Constant <value_ints = [2]> ()
        sizes = Shape <start = 2, end = 3> (new_x) end = Min (sizes, most)
        new = Slice (new_x, zero, end, two)
        rows = Neg (new) present = Concat <axis = 2> (past, rows) y = Neg (present) }}""",
}


@pytest.mark.parametrize("name", ["written", *rest("growing/llama__optimum")])
def test_a_step_past_the_capacity_fails_and_says_so(name: str) -> None:
    source = written_or_read(name)
    result, _ = raised(source, capacity=6)
    assert not differences(source, result, 6, 1, plan=(5, 1))
    with pytest.raises(Exception, match="exceeds max_sequence_length"):
        differences(source, result, 6, 1, plan=(5, 1, 1))


@pytest.mark.parametrize(
    ("name", "caches"),
    [
        ("written", 1),
        pytest.param("growing/llama__optimum", 4, marks=pytest.mark.exhaustive),
    ],
)
def test_without_a_capacity_the_flag_is_named(name: str, caches: int) -> None:
    source = written_or_read(name)
    _, report = kv.raise_(source, verify=False)
    assert [one.code for one in report.refused] == ["growing-cache"] * caches
    assert "`--capacity`" in report.refused[0].message
    with pytest.raises(kv.Refused):
        kv.raise_(source, require_all=True, verify=False)


@pytest.mark.parametrize("capacity", [None, ROWS])
def test_every_cache_that_grows_in_attention_has_a_place(capacity: int | None) -> None:
    source = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]>
        g (float[2,1,12] q, float[2,1,12] k, float[2,1,12] v, float[2,3,P,4] past_k,
        float[2,3,P,4] past_v) => (float[2,1,24] y, float[2,3,T,4] now_k, float[2,3,T,4] now_v) {
        a, now_k, now_v = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 3>
            (q, k, v, , , past_k, past_v) y = Concat <axis = 2> (a, a) }"""
    )
    _, report = kv.raise_(source, capacity=capacity, partial=True, verify=False)
    places = {str(one.location) for one in report.refused if one.code != "capacity-unused"}
    assert places == {"g, node `#0` (com.microsoft::DecoderMaskedMultiHeadAttention)"}


def written_or_read(name: str) -> onnx.ModelProto:
    """Return a real decoder, or the smallest model whose cache grows."""
    if name == "written":
        return onnx.parser.parse_model(WRITTEN["rows that come out of the length"])
    return read(name)


ATTENTION = '<ir_version: 10, opset_import: ["" : 23]>'
_FOUR = f"""{ATTENTION} g (float[B,4,S,8] new_q, float[B,2,S,8] new_k, float[B,2,S,6] new_v,
    float[B,2,P,8] past_k, float[B,2,P,6] past_v, int64[B,M] attention_mask)
    => (float[B,4,S,6] y, float[B,2,T,8] present_k, float[B,2,T,6] present_v) {{
    k = Neg (new_k) v = Neg (new_v) """
_MASK = """kept = Cast <to = 9> (attention_mask) axes = Constant <value_ints = [1, 2]> ()
    narrow = Unsqueeze (kept, axes) one = Constant <value_ints = [1]> ()
    rows = Shape <start = 2, end = 3> (new_q) wide = Concat <axis = 0> (one, one, rows, one)
    mask = Expand (narrow, wide)"""
_THREE = f"""{ATTENTION} g (float[B,S,32] new_q, float[B,S,16] new_k, float[B,S,12] new_v,
    float[B,2,P,8] past_k, float[B,2,P,6] past_v)
    => (float[B,S,24] y, float[B,2,T,8] present_k, float[B,2,T,6] present_v) {{
    k = Neg (new_k) v = Neg (new_v) """
INSIDE: dict[str, str] = {
    "causal": f"""{_FOUR} y, present_k, present_v = Attention <is_causal = 1>
        (new_q, k, v, , past_k, past_v) }}""",
    "with a mask": f"""{_FOUR} {_MASK}
        y, present_k, present_v = Attention <scale = 0.5, softcap = 3.0>
        (new_q, k, v, mask, past_k, past_v) }}""",
    "causal and with a mask": f"""{_FOUR} {_MASK}
        y, present_k, present_v = Attention <is_causal = 1>
        (new_q, k, v, mask, past_k, past_v) }}""",
    "three dimensions": f"""{_THREE} y, present_k, present_v = Attention
        <q_num_heads = 4, kv_num_heads = 2> (new_q, k, v, , past_k, past_v) }}""",
    "three dimensions, causal": f"""{_THREE} y, present_k, present_v = Attention
        <q_num_heads = 4, kv_num_heads = 2, is_causal = 1> (new_q, k, v, , past_k, past_v) }}""",
    "the present read elsewhere": f"""{_FOUR.replace("=> (", "=> (float[B,2,T,8] z, ")}
        y, present_k, present_v = Attention <is_causal = 1> (new_q, k, v, , past_k, past_v)
        z = Neg (present_k) }}""",
}


@pytest.mark.parametrize("name", INSIDE)
def test_attention_that_grows_its_cache_reads_the_rows_in_use(name: str) -> None:
    source = onnx.parser.parse_model(INSIDE[name])
    for value in source.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "M":
                dim.dim_param = "P + S"  # which the parser does not take
    result, report = raised(source)
    assert not report.refused
    assert [cache.source for cache in report.caches] == ["attention", "attention"]
    for batch in (1, 3):
        assert not differences(source, result, ROWS, batch)


IN_A_FUNCTION = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
    g (float[B,2,S,3] new_0, float[B,2,P,3] past_0, float[B,2,S,3] new_1, float[B,2,P,3] past_1)
    => (float[B,2,T,3] present_0, float[B,2,T,3] y_0, float[B,2,T,3] present_1,
    float[B,2,T,3] y_1) {
    present_0, y_0 = own.layer (past_0, new_0) present_1, y_1 = own.layer (past_1, new_1) }
    <domain: "own", opset_import: ["" : 17]> layer (past, new) => (present, y) {
    rows = Neg (new) present = Concat <axis = 2> (past, rows) y = Abs (present) }"""


@pytest.mark.long
def test_a_function_in_which_caches_grow_is_inlined() -> None:
    source = onnx.parser.parse_model(IN_A_FUNCTION)
    result, report = raised(source)
    assert len(report.caches) == 2
    assert not report.refused
    assert not result.functions
    assert {done.location.graph for done in report.raised} == {"own::layer"}
    assert any("inlined" in note for note in report.notes)
    for batch in (1, 3):
        assert not differences(source, result, ROWS, batch)


def test_a_function_stays_whose_caches_cannot_be_raised() -> None:
    text = IN_A_FUNCTION.replace("y = Abs (present)", "y = Concat <axis = 2> (past, past)")
    source = onnx.parser.parse_model(text)
    result, report = kv.raise_(source, capacity=ROWS, attention="keep", partial=True, verify=False)
    assert not report.raised
    assert len(ir.to_proto(result).functions) == 1


@pytest.mark.parametrize("name", WRITTEN)
def test_what_reads_the_cache_reads_the_rows_in_use(name: str) -> None:
    source = onnx.parser.parse_model(WRITTEN[name])
    result, report = raised(source)
    assert not report.refused
    assert [one.name for one in report.inputs_added] == ["past_length"]
    for batch in (1,) if name == "a batch of one" else (1, 3):
        assert not differences(source, result, ROWS, batch)


def test_lengths_of_other_names_can_be_granted() -> None:
    nodes = TWO.replace("OUT", "float[B,2,T,3] y") + "y = Neg (present_0) }"
    source = onnx.parser.parse_model(nodes)
    _, report = kv.raise_(source, capacity=ROWS, partial=True, verify=False)
    assert {one.code for one in report.refused} == {"sizes-unrelated"}
    assert {one.assumption for one in report.refused} == {"same-dim:P=Q"}
    result, report = raised(source, assume=["same-dim:P=Q"])
    assert {done.assumed for done in report.raised} == {("same-dim:P=Q",)}
    assert not differences(source, result, ROWS, 3)


OF_ONE_SIZE = {
    "no cache is known to be of the length of the others": (
        "growing",
        {"sizes-unrelated"},
        "the refusals say why",
    ),
    "the caches have another size already": ("fixed", set(), "no cache of the model grows"),
    "there is no cache": ("none", set(), "no cache of the model grows"),
}
"""Models in which no cache gets a capacity, what is refused besides, and what the help says."""


@pytest.mark.parametrize(("kind", "codes", "why"), OF_ONE_SIZE.values(), ids=OF_ONE_SIZE)
def test_a_capacity_that_no_cache_gets_is_a_failure(
    kind: str, codes: set[str], why: str, tmp_path: Path
) -> None:
    source = {
        "growing": lambda: onnx.parser.parse_model(
            TWO.replace("OUT", "float[B,2,T,3] y") + "y = Neg (present_0) }"
        ),
        "fixed": lambda: read("models/native/llama_static"),
        "none": lambda: onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 18]> g (float[B] x) => (float[B] y) {y = Abs (x)}'
        ),
    }[kind]()
    path = tmp_path / "m.onnx"
    onnx.save(source, path)
    with pytest.raises(kv.Refused) as caught:
        kv.raise_(path, capacity=ROWS, verify=False)
    report = caught.value.report
    assert [one.code for one in report.blocked] == ["capacity-unused"]
    assert {one.code for one in report.refused} == codes
    assert why in (report.blocked[0].help or "")
    assert "`partial=True`" in str(caught.value)
    _, report = kv.raise_(path, capacity=ROWS, partial=True, verify=False)
    assert not report.blocked
