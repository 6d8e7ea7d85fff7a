"""What a model's inputs mean, found from its graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.verification.inputs.interface import CachePair
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.roles import Flow, Place
from tests.grids import each
from tests.runtime.recorded import NAMES, model, native, recorded_run

DECODER = {
    "input_ids": "token_ids",
    "position_ids": "position_ids",
    "key_cache.0": "past_cache",
    "value_cache.0": "past_cache",
    "key_cache.1": "past_cache",
    "value_cache.1": "past_cache",
    "write_indices": "write_indices",
    "nonpad_kv_seqlen": "nonpad_kv_seqlen",
}


def roles(model: ir.Model) -> dict[str, str]:
    return {spec.name: spec.role for spec in plan(model).inputs}


@pytest.mark.parametrize(
    "name", ["llama_static", "llama_static_fp16", "mistral_sliding_bias_static"]
)
def test_the_inputs_of_a_decoder_are_known(name: str) -> None:
    found = plan(native(name))
    assert roles(native(name)) == DECODER
    limits = {spec.name: (spec.uses.rows, spec.uses.capacity) for spec in found.inputs}
    assert limits["input_ids"] == (256, None)
    assert limits["position_ids"] == (128, None)
    assert limits["nonpad_kv_seqlen"] == (None, 32)
    writes = {spec.name: spec.uses.writes for spec in found.inputs}["write_indices"]
    assert {write.cache and write.cache.past for write in writes} == {
        name for name, role in DECODER.items() if role == "past_cache"
    }
    assert {(write.offset, write.mode, write.capacity) for write in writes} == {(0, "linear", 32)}


def test_the_caches_of_a_decoder_are_known() -> None:
    assert plan(native("llama_static")).pairs == tuple(
        CachePair(f"{kind}_cache.{layer}", f"updated_{kind}_cache.{layer}", "fixed", 1, "linear")
        for layer in (0, 1)
        for kind in ("key", "value")
    )


def test_growing_and_fixed_caches_stand_side_by_side() -> None:
    found = plan(native("gemma4_hybrid_static"))
    assert [(p.past, p.present, p.kind, p.axis) for p in found.pairs] == [
        ("past_key_values.0.key", "present.0.key", "growing", 2),
        ("past_key_values.0.value", "present.0.value", "growing", 2),
        ("key_cache.1", "updated_key_cache.1", "fixed", 1),
        ("value_cache.1", "updated_value_cache.1", "fixed", 1),
    ]
    assert {spec.name: spec.role for spec in found.inputs}["attention_mask"] == "attention_mask"


@pytest.mark.parametrize(
    ("body", "kind", "axis"),
    [
        pytest.param("y = ScatterElements <axis = 1> (x, i, u)", "fixed", 1, id="ScatterElements"),
        pytest.param(
            "z = Transpose <perm = [1, 0, 2]> (x) v = Transpose <perm = [1, 0, 2]> (u)"
            "j = Constant <value_ints = [3]> () n = Constant <value_ints = [-1, 1]> ()"
            "p = Add (s, j) k = Reshape (p, n) w = ScatterND (z, k, v)"
            "y = Transpose <perm = [1, 0, 2]> (w)",
            "fixed",
            None,
            id="ScatterND between transpositions",
        ),
    ],
)
def test_caches_that_other_operators_update_go_round(
    body: str, kind: str, axis: int | None
) -> None:
    text = (
        "g (float[2, 7, 5] x, float[2, 1, 5] u, int64[2, 1, 5] i, int64[1] s)"
        f" => (float[2, 7, 5] y) {{ {body} }}"
    )
    assert plan(model(text)).pairs == (CachePair("x", "y", kind, axis),)


def test_what_is_no_cache_is_not_taken_for_one() -> None:
    found = plan(native("mobius_block_bias_int64_2d"))
    assert found.pairs == ()
    assert {spec.name: spec.role for spec in found.inputs} == {
        "write_indices": "write_indices",
        "nonpad_kv_seqlen": "nonpad_kv_seqlen",
        "block_sequence_ids": "update",
    }


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_types_are_those_of_recorded_inputs(name: str) -> None:
    inputs, _ = recorded_run(name)
    found = {spec.name: (spec.dtype.numpy(), len(spec.shape)) for spec in plan(native(name)).inputs}
    assert found == {n: (array.dtype, array.ndim) for n, array in inputs.items()}


SCATTER = "present = TensorScatter <axis = 1> (past, update, {})"
SIGNATURE = "g (float[B, S, D] past, float[B, L, D] update, {}) => (float[B, S, D] present)"
LOCAL = '<ir_version: 10, opset_import: ["": 24, "local": 1]>'


@each(
    ("declared", "body", "offset"),
    [
        pytest.param("int64[B] x", SCATTER.format("x"), 0, id="directly"),
        pytest.param(
            "int32[B] x", "y = Cast <to = 7> (x) " + SCATTER.format("y"), 0, id="through Cast"
        ),
        pytest.param(
            "int64[B, 1] x",
            "axis = Constant <value_ints = [1]> () y = Squeeze (x, axis)" + SCATTER.format("y"),
            0,
            id="through Squeeze",
        ),
        pytest.param(
            "int64[B] x",
            "one = Constant <value = int64 {3}> () y = Add (one, x)" + SCATTER.format("y"),
            3,
            id="plus a constant",
        ),
        pytest.param(
            "int64[B] x",
            "one = Constant <value_int = 2> () y = Sub (x, one)" + SCATTER.format("y"),
            -2,
            id="minus a constant",
        ),
    ],
)
def test_starts_are_followed(declared: str, body: str, offset: int) -> None:
    found = plan(model(f"{SIGNATURE.format(declared)} {{ {body} }}"))
    spec = found.inputs[2]
    assert spec.role == "write_indices"
    assert [write.offset for write in spec.uses.writes] == [offset]
    assert [(p.past, p.present, p.axis) for p in found.pairs] == [("past", "present", 1)]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "one = Constant <value_int = 2> () y = Sub (one, x)" + SCATTER.format("y"),
            id="a constant minus them",
        ),
        pytest.param("y = Mul (x, x)" + SCATTER.format("y"), id="a product"),
    ],
)
def test_starts_are_not_followed_where_their_values_change_otherwise(body: str) -> None:
    found = plan(model(f"{SIGNATURE.format('int64[B] x')} {{ {body} }}"))
    assert found.inputs[2].role == "free"


def test_caches_and_starts_are_followed_into_functions_and_branches() -> None:
    text = f"""{LOCAL} {SIGNATURE.format("int64[B] x, bool c")}
    {{
      present = If (c) <
        then_branch = t () => (float[B, S, D] a) {{ a = local.Outer (x, update, past) }},
        else_branch = e () => (float[B, S, D] b)
          {{ b = TensorScatter <axis = 1, mode = "circular"> (past, update, x) }}
      >
    }}
    <domain: "local", opset_import: ["": 24]>
    Inner (p, u, w) => (q) {{ q = TensorScatter <axis = 1> (p, u, w) }}
    <domain: "local", opset_import: ["": 24, "local": 1]>
    Outer (w, u, p) => (q) {{ r = Identity (p) q = local.Inner (r, u, w) }}
    """
    found = plan(model(text))
    assert {spec.name: spec.role for spec in found.inputs} == {
        "past": "past_cache",
        "update": "update",
        "x": "write_indices",
        "c": "condition",
    }
    assert [(p.past, p.present, p.kind, p.axis) for p in found.pairs] == [
        ("past", "present", "fixed", 1)
    ]
    assert {write.mode for write in found.inputs[2].uses.writes} == {"linear", "circular"}


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_function_that_calls_itself_does_not_stall_the_search() -> None:
    text = f"""{LOCAL} g (float[N] x) => (float[N] y) {{ y = local.Again (x) }}
    <domain: "local", opset_import: ["": 24, "local": 1]>
    Again (p) => (q) {{ r = local.Again (p) q = local.Again (r) }}
    """
    recursive = model(text)
    places = Flow(recursive).closure(Place(recursive.graph.inputs[0]))
    assert recursive.graph.outputs[0] not in [place.value for place in places]
    assert plan(recursive).inputs[0].role == "free"


@pytest.mark.long
@each(
    ("past", "present", "kind"),
    [
        pytest.param("past_key_values.3.key", "present.3.key", "named", id="as optimum names them"),
        pytest.param("key_cache.0", "updated_key_cache.0", "named", id="as mobius names them"),
        pytest.param("past_0", "present_0", "named", id="past and present"),
        pytest.param("cache", "logits", None, id="unrelated names"),
    ],
)
def test_caches_are_known_by_their_names_where_no_operator_tells(
    past: str, present: str, kind: str | None
) -> None:
    shape = ir.Shape(["batch", 2, "S", 8])
    tensor = ir.TensorType(ir.DataType.FLOAT)
    value = ir.Value(name=past, type=tensor, shape=shape)
    node = ir.node("Relu", [value])
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = present, tensor, shape
    graph = ir.Graph([value], node.outputs, nodes=[node], opset_imports={"": 18})
    found = plan(ir.Model(graph, ir_version=8)).pairs
    assert [pair.kind for pair in found] == ([] if kind is None else [kind])


def test_inputs_that_are_initializers_need_not_be_fed() -> None:
    weight = ir.tensor(np.zeros(3, np.float32), name="w")
    text = "g (float[3] x, float[3] w) => (float[3] y) { y = Add (x, w) }"
    overridable = model(text)
    overridable.graph.inputs[1].const_value = weight
    overridable.graph.initializers.add(overridable.graph.inputs[1])
    assert list(roles(overridable)) == ["x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "g (seq(float[N]) x) => (int64 y) { y = SequenceLength (x) }",
            "input `x` is not a tensor",
            id="a sequence",
        ),
        pytest.param(
            "g (float x) => (float y) { y = Identity (x) }", None, id="a scalar is no unknown rank"
        ),
    ],
)
def test_inputs_that_cannot_be_drawn_are_named(text: str, message: str | None) -> None:
    if message is None:
        assert plan(model(text)).inputs[0].shape == ()
        return
    with pytest.raises(CannotDraw, match=message):
        plan(model(text))


def test_an_input_of_unknown_rank_or_type_is_named() -> None:
    unknown = model("g (float[N] x) => (float[N] y) { y = Identity (x) }")
    unknown.graph.inputs[0].shape = None
    with pytest.raises(CannotDraw, match="the rank of input `x` is unknown"):
        plan(unknown)
    unknown.graph.inputs[0].type = None
    with pytest.raises(CannotDraw, match="the element type of input `x` is unknown"):
        plan(unknown)


def test_weights_are_not_read() -> None:
    source = native("llama_static")
    for value in source.graph.initializers.values():
        tensor = value.const_value
        assert tensor is not None
        if tensor.size > 1:
            value.const_value = ir.ExternalTensor(
                "missing.bin", 0, None, tensor.dtype, shape=tensor.shape, name=value.name or ""
            )
    assert roles(source) == DECODER
