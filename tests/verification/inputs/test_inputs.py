"""Values for inputs, and those of the next decode step."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.model_io.model import deserialize, serialize
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.sessions import open_session
from onnx_kvtool.verification.inputs.cases import CASES, Case
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.stepping import advance
from onnx_kvtool.verification.inputs.symbols import attempts, sizes_for
from tests.grids import each
from tests.runtime.recorded import NAMES, ORACLE, model, native

SEEDS = range(5)
PROMPT, TOKEN, CHUNK, END = CASES


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_reading_of_a_real_model_runs(name: str, case: Case) -> None:
    source = native(name)
    found = plan(source)
    session = open_session(ORACLE, serialize(source), "")
    attempt, sizes = next(attempts(found, case, {}))
    assert attempt == case
    session.run(draw(found, case, 1, sizes))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_respect_the_cache_protocol(case: Case, seed: int) -> None:
    inputs = draw(plan(native("llama_static")), case, seed)
    batch, length = inputs["input_ids"].shape
    starts = inputs["write_indices"]
    assert (batch, length) == (case.batch, case.length)
    assert ((starts >= 0) & (starts + length <= 32)).all()
    np.testing.assert_array_equal(inputs["nonpad_kv_seqlen"], starts + length)
    np.testing.assert_array_equal(inputs["position_ids"], starts[:, None] + np.arange(length))
    assert ((inputs["input_ids"] >= 0) & (inputs["input_ids"] < 256)).all()
    if case.start == "zero":
        assert (starts == 0).all()
    elif case.start == "end":
        assert starts[0] + length == 32
    else:
        assert (starts > 0).all()


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    found = plan(native("llama_static"))
    one, again, other = (draw(found, CHUNK, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["key_cache.0"], other["key_cache.0"])


@pytest.mark.long
def test_sizes_differ_where_they_are_free() -> None:
    for case in CASES[:1] + CASES[2:]:
        assert case.batch != case.length
    sizes = sizes_for(plan(native("gemma4_hybrid_static")), CHUNK, {})
    assert sizes == {
        "batch": 3,
        "sequence_len": 2,
        "past_seq_len": 5,
        "seq_len": 2,
        "past_sequence_len": 5,
    }


@pytest.mark.long
def test_bound_dimensions_take_others_that_count_the_same_along() -> None:
    found = plan(native("gemma4_hybrid_static"))
    inputs = draw(found, CHUNK, 0, {"sequence_len": 6, "past_sequence_len": 9, "batch": 4})
    assert inputs["input_ids"].shape == (4, 6)
    assert inputs["attention_mask"].shape == (4, 15)
    assert inputs["past_key_values.0.key"].shape == (4, 2, 9, 16)


def test_a_mask_for_each_query_leaves_every_one_the_first_key() -> None:
    text = """
    g (float[B, H, L, 8] q, float[B, H, T, 8] k, float[B, H, T, 8] v, bool[B, 1, L, T] mask)
        => (float[B, H, L, 8] y)
    { y = Attention (q, k, v, mask) }
    """
    mask = draw(plan(model(text)), END, 0)["mask"]
    assert mask.dtype == bool
    assert mask[..., 0].all()
    assert not mask[..., 1:].all()
    assert mask[..., 1:].any()


@pytest.mark.long
def test_masks_are_ones_but_for_padding_at_one_end() -> None:
    mask = draw(plan(native("gemma4_hybrid_static")), CHUNK, 0)["attention_mask"]
    assert mask.shape == (3, 7)
    assert (mask[:, 1:] == 1).all()
    assert sorted(mask[:, 0].tolist()) == [0, 0, 1]
    prompt = draw(plan(native("gemma4_hybrid_static")), PROMPT, 0)["attention_mask"]
    assert prompt.tolist() == [[1, 1, 0], [1, 1, 1]]


CIRCULAR = (
    "g (float[B, S, D] past, float[B, L, D] update, int64[B] start) => (float[B, S, D] present)"
    '{ present = TensorScatter <axis = 1, mode = "circular"> (past, update, start) }'
)
LINEAR = CIRCULAR.replace(', mode = "circular"', "")


@each("seed", SEEDS)
def test_starts_of_circular_caches_cross_the_end_and_lie_past_it(seed: int) -> None:
    inputs = draw(plan(model(CIRCULAR)), END, seed)
    capacity, length = inputs["past"].shape[1], inputs["update"].shape[1]
    starts = inputs["start"]
    assert capacity - length < starts[0] < capacity
    assert starts[1] >= capacity


@each("seed", SEEDS)
@each("case", CASES)
def test_starts_allow_for_what_the_model_adds(case: Case, seed: int) -> None:
    text = LINEAR.replace(
        "{ present", "{ four = Constant <value_int = 4> () late = Sub (start, four) present"
    ).replace("update, start)", "update, late)")
    inputs = draw(plan(model(text)), case, seed)
    written = inputs["start"] - 4
    assert (written >= 0).all()
    assert (written + inputs["update"].shape[1] <= inputs["past"].shape[1]).all()


def test_no_more_rows_are_drawn_than_a_fixed_cache_holds() -> None:
    text = LINEAR.replace("float[B, S, D]", "float[B, 2, D]")
    inputs = draw(plan(model(text)), END, 0)
    assert inputs["update"].shape[1] == 2
    assert (inputs["start"] == 0).all()


NOT_IN_TENSOR_SCATTER = {"UNDEFINED", "INT2", "UINT2", "FLOAT6E2M3", "FLOAT6E3M2"}


@each("dtype", [d for d in ir.DataType if d.name not in NOT_IN_TENSOR_SCATTER])
def test_every_element_type_can_be_drawn(dtype: ir.DataType) -> None:
    source = model(LINEAR)
    for value in (*source.graph.inputs[:2], *source.graph.outputs):
        value.type = ir.TensorType(dtype)
    inputs = draw(plan(source), CHUNK, 0)
    assert inputs["past"].dtype == dtype.numpy()
    assert inputs["past"].shape == (3, 13, 7)
    # Data that is only moved must tell rows apart.
    assert len({row.tobytes() for row in inputs["past"][0]}) > 1


@pytest.mark.parametrize(
    ("text", "dims", "message"),
    [
        pytest.param(
            "g (float[N, M] x) => (float[N, M] y) { y = Relu (x) }",
            {"N": 1 << 20, "M": 1 << 20},
            "a run would take about 20 TiB of memory, expected at most",
            id="absurd sizes",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Relu (x) }",
            {"N": -3},
            "dimension 0 of input `x` would be -3",
            id="a negative size",
        ),
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(
    text: str, dims: dict[str, int], message: str
) -> None:
    with pytest.raises(CannotDraw, match=message):
        draw(plan(model(text)), PROMPT, 0, dims)


@each(
    ("name", "kind"),
    [
        ("mask_length", "total"),
        ("attention_mask_sequence_length", "total"),
        ("total_len", "total"),
        ("encoder_mask_length", "length"),
        ("mask_batch", "batch"),
        ("max_mask_length", "capacity"),
        ("s89", "total"),
        ("new_tokens", "length"),
    ],
)
def test_a_name_says_what_the_columns_of_a_mask_count(name: str, kind: str) -> None:
    text = f"""g (int64[B, seq] input_ids, int64[B, {name}] attention_mask, float[B, past, 5] past,
        float[B, seq, 5] new) => (float[B, both, 5] present) {{
            present = Concat <axis = 1> (past, new)
        }}"""
    found = plan(model(text))
    assert found.kinds[name] == kind
    if kind == "total":
        assert sizes_for(found, TOKEN, {})[name] == TOKEN.past + TOKEN.length


def test_the_columns_of_a_mask_count_new_rows_where_there_are_no_caches() -> None:
    found = plan(
        model(
            "g (int64[B, seq] input_ids, int64[B, mask_length] attention_mask)"
            " => (int64[B, seq] y) { y = Neg (input_ids) }"
        )
    )
    assert sizes_for(found, TOKEN, {})["mask_length"] == TOKEN.length


def test_other_readings_differ_from_the_first() -> None:
    text = "g (float[A, 4, C] cache, float[A2, 4, C2] upd, int64[P] pos) => (float[A, 4, C] y)"
    found = plan(model(text + "{ y = Identity (cache) }"))
    assert found.kinds["P"] == "lone"
    readings = [(*sizes.items(), case.start) for case, sizes in attempts(found, CHUNK, {})]
    assert len(readings) == len(set(readings))
    assert {("P", 2), ("P", 3)} <= {pair for reading in readings for pair in reading}


def run(source: ir.Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return open_session(ORACLE, serialize(source), "").run(inputs)


def test_the_next_step_of_a_fixed_cache() -> None:
    source = native("llama_static")
    found = plan(source)
    first = draw(found, CHUNK, 0)
    outputs = run(source, first)
    second = advance(found, first, outputs)
    assert second is not None
    assert second["input_ids"].shape == (3, 1)
    np.testing.assert_array_equal(second["write_indices"], first["write_indices"] + 2)
    np.testing.assert_array_equal(second["nonpad_kv_seqlen"], first["nonpad_kv_seqlen"] + 1)
    np.testing.assert_array_equal(second["position_ids"], first["position_ids"][:, -1:] + 1)
    for kind in ("key", "value"):
        np.testing.assert_array_equal(second[f"{kind}_cache.1"], outputs[f"updated_{kind}_cache.1"])


@pytest.mark.long
def test_the_next_step_of_a_growing_cache() -> None:
    source = native("gemma4_hybrid_static")
    found = plan(source)
    first = draw(found, CHUNK, 0)
    outputs = run(source, first)
    second = advance(found, first, outputs)
    assert second is not None
    np.testing.assert_array_equal(second["past_key_values.0.key"], outputs["present.0.key"])
    assert second["attention_mask"].shape == (3, 8)
    np.testing.assert_array_equal(second["attention_mask"][:, :7], first["attention_mask"])
    assert (second["attention_mask"][:, 7] == 1).all()
    run(source, second)


def test_a_single_position_stays_an_array() -> None:
    source = model(
        "g (float[B, past_len, 5] past, float[B, L, 5] u, int64 pos)"
        " => (float[B, total, 5] present, int64 next)"
        "{ present = Concat <axis = 1> (past, u) next = Add (pos, pos) }"
    )
    found = plan(source)
    first = draw(found, PROMPT, 0)
    second = advance(found, first, run(source, first))
    assert second is not None
    assert isinstance(second["pos"], np.ndarray)
    assert second["pos"] == first["pos"] + first["u"].shape[1]


def test_a_bound_number_of_rows_stays() -> None:
    source = native("llama_static")
    found = plan(source)
    first = draw(found, PROMPT, 0, {"sequence_len": 4})
    second = advance(found, first, run(source, first), dims={"sequence_len": 4})
    assert second is not None
    assert second["position_ids"].tolist() == [[4, 5, 6, 7]] * 2
    assert second["nonpad_kv_seqlen"].tolist() == [8, 8]


def steps(source: ir.Model, case: Case) -> int:
    """Return how many steps follow the first run until there is no room."""
    found = plan(source)
    inputs, count = draw(found, case, 0), 0
    while (following := advance(found, inputs, run(source, inputs))) is not None and count < 50:
        inputs, count = following, count + 1
    return count


@pytest.mark.long
def test_stepping_stops_when_a_linear_cache_is_full() -> None:
    assert steps(native("llama_static"), PROMPT) == 32 - 3
    assert steps(native("llama_static"), END) == 0


@pytest.mark.long
def test_stepping_does_not_stop_at_the_end_of_a_circular_cache() -> None:
    assert steps(model(CIRCULAR), END) == 50


def test_stepping_stops_at_the_end_of_the_table_of_positions() -> None:
    text = """
    g (float[B, S, 1] past, int64[B, L] position_ids, int64[B] start) => (float[B, S, 1] present)
    <float[9, 1] table = {0, 1, 2, 3, 4, 5, 6, 7, 8}>
    {
      update = Gather (table, position_ids)
      present = TensorScatter <axis = 1> (past, update, start)
    }
    """
    source = model(text)
    assert steps(source, PROMPT) == 9 - 3


@pytest.mark.long
def test_without_a_cache_there_is_no_next_step() -> None:
    source = native("mobius_block_bias_int64_2d")
    found = plan(source)
    inputs = draw(found, PROMPT, 0)
    assert advance(found, inputs, run(source, inputs)) is None


def test_a_present_that_does_not_fit_its_past_ends_the_steps() -> None:
    source = native("llama_static")
    found = plan(source)
    inputs = draw(found, PROMPT, 0)
    outputs = run(source, inputs)
    outputs["updated_key_cache.0"] = outputs["updated_key_cache.0"][:, :31]
    assert advance(found, inputs, outputs) is None


@each(
    ("node", "axis"),
    [
        ("GatherElements <axis = 0> (d, i)", 0),
        ("ScatterElements <axis = 0> (d, i, u)", 0),
        ("ScatterElements <axis = -1> (d, i, u)", 1),
        ("Gather <axis = 0> (d, i)", 0),
    ],
)
def test_indices_stay_inside_of_what_they_index(node: str, axis: int) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]>'
        f"g (float[2, 3] d, int64[7, 5] i, float[7, 5] u) => (y) {{ y = {node} }}"
    )
    found = plan(deserialize(model.SerializeToString()))
    for seed in SEEDS:
        assert set(np.unique(draw(found, PROMPT, seed)["i"])) == set(range((2, 3)[axis]))


def test_a_mask_that_alone_says_how_many_rows_are_in_use_grows_with_them() -> None:
    """Its cache has a fixed size, so that `past` stands in the length of the mask only."""
    source = model(
        """g (int64[B,S] input_ids, int64[B,M] attention_mask, float[B,2,7,3] past_k)
        => (float[B,2,7,3] present_k) {
        total = Shape <start = 1, end = 2> (attention_mask)
        new = Shape <start = 1, end = 2> (input_ids)
        batch = Shape <start = 0, end = 1> (input_ids) first = Sub (total, new)
        starts = Expand (first, batch) heads = Constant <value_ints = [2]> ()
        width = Constant <value_ints = [3]> () shape = Concat <axis = 0> (batch, heads, new, width)
        ids = Cast <to = 1> (input_ids) axes = Constant <value_ints = [1, 3]> ()
        apart = Unsqueeze (ids, axes) rows = Expand (apart, shape)
        present_k = TensorScatter <axis = 2> (past_k, rows, starts) }"""
    )
    source.graph.inputs[1].shape = ir.Shape(["B", "past + S"])
    found = plan(source)
    first = draw(found, TOKEN, 0)
    before, length = first["attention_mask"].shape[1], first["input_ids"].shape[1]
    assert before > length
    second = advance(found, first, {"present_k": first["past_k"]})
    assert second is not None
    assert second["attention_mask"].shape[1] == before + second["input_ids"].shape[1]
