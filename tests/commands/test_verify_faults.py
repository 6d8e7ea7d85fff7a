"""Planted faults are found and equal models pass, in real decoders and in small models."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import clone
from tests.grids import grid, part
from tests.runtime.recorded import model, native

pytestmark = pytest.mark.long

Change = Callable[[ir.Model], None]


def nodes(source: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in source.graph if node.op_type == op_type]


def constant(source: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
    value.shape = ir.Shape(array.shape)
    source.graph.initializers.add(value)
    return value


def start_one_row_late(source: ir.Model) -> None:
    scatter = nodes(source, "TensorScatter")[-1]
    one = constant(source, "one", np.array([1], np.int64))
    late = ir.node("Add", [scatter.inputs[2], one])
    source.graph.insert_before(scatter, late)
    scatter.replace_input_with(2, late.outputs[0])


def scatter_along_another_axis(source: ir.Model) -> None:
    nodes(source, "TensorScatter")[0].attributes["axis"] = ir.AttrInt64("axis", 2)


def start_all_sequences_where_the_first_does(source: ir.Model) -> None:
    scatter = nodes(source, "TensorScatter")[0]
    first = constant(source, "first", np.array([0], np.int64))
    start = ir.node("Gather", [scatter.inputs[2], first])
    shape = ir.node("Shape", [scatter.inputs[2]])
    starts = ir.node("Expand", [start.outputs[0], shape.outputs[0]])
    source.graph.insert_before(scatter, [start, shape, starts])
    scatter.replace_input_with(2, starts.outputs[0])


def write_values_as_keys(source: ir.Model) -> None:
    key, value = nodes(source, "TensorScatter")[:2]
    key.replace_input_with(1, value.inputs[1])


def forget_causality(source: ir.Model) -> None:
    nodes(source, "Attention")[0].attributes["is_causal"] = ir.AttrInt64("is_causal", 0)


def forget_the_valid_length(source: ir.Model) -> None:
    limited = [node for node in nodes(source, "Attention") if len(node.inputs) > 6]
    limited[-1].replace_input_with(6, None)


def forget_the_mask(source: ir.Model) -> None:
    masked = [node for node in nodes(source, "Attention") if node.inputs[3] is not None]
    masked[-1].replace_input_with(3, None)


def swap_cosine_and_sine(source: ir.Model) -> None:
    rotary = nodes(source, "RotaryEmbedding")[0]
    cosine, sine = rotary.inputs[1:3]
    rotary.replace_input_with(1, sine)
    rotary.replace_input_with(2, cosine)


whichever_comes_first = pytest.mark.parametrize("first", [0, 1], ids=["as it is", "swapped"])

STATIC = (
    "llama_static",
    "llama_static_fp16",
    "gemma4_hybrid_static",
    "mistral_sliding_bias_static",
)

FAULTS: list[tuple[str, Change]] = [
    *(
        (name, fault)
        for name in STATIC
        for fault in (
            start_one_row_late,
            scatter_along_another_axis,
            start_all_sequences_where_the_first_does,
            write_values_as_keys,
            swap_cosine_and_sine,
        )
    ),
    # The mask of mistral_sliding_bias_static covers the valid length, too.
    *((name, forget_the_valid_length) for name in STATIC[:3]),
    ("mistral_sliding_bias_static", forget_the_mask),
    ("llama_static", forget_causality),
    ("llama_static_fp16", forget_causality),
    ("gemma4_hybrid_static", forget_the_mask),
]


@part(4)
@pytest.mark.parametrize(
    ("name", "fault"),
    [pytest.param(*f, id=f"{f[1].__name__} in {f[0]}") for f in FAULTS],
)
@whichever_comes_first
def test_a_fault_in_a_decoder_is_found(name: str, fault: Change, first: int) -> None:
    models = [native(name), native(name)]
    fault(models[1])
    assert kv.verify(models[first], models[1 - first]).status == "different"


@part(2)
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("llama_static", start_one_row_late),
        ("gemma4_hybrid_static", write_values_as_keys),
        ("mistral_sliding_bias_static", forget_the_mask),
    ],
)
@whichever_comes_first
def test_a_fault_is_found_beside_the_rounding_of_a_lowered_model(
    name: str, fault: Change, first: int
) -> None:
    right, wrong = native(name), native(name)
    fault(wrong)
    models = [right, kv.lower(wrong, opset=18, verify=False)[0]]
    assert kv.verify(models[first], models[1 - first]).status == "different"


BITS = {
    "llama_static": (0, 1, 10, 22, 23, 30, 31),
    "llama_static_fp16": (0, 9, 10, 14, 15),
}
WEIGHTS = (
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.1.mlp.down_proj.weight",
    "model.norm.weight",
)


def flip(source: ir.Model, weight: str, bit: int) -> None:
    value = source.graph.initializers[weight]
    assert value.const_value is not None
    array = value.const_value.numpy().copy()
    words = array.reshape(-1).view(f"u{array.itemsize}")
    words[len(words) // 2] ^= np.array(1 << bit, words.dtype)
    value.const_value = ir.tensor(array, name=weight)


@grid(
    10,
    weight=WEIGHTS,
    flipped={f"bit {bit} in {n}": (n, bit) for n, bits in BITS.items() for bit in bits},
)
def test_one_bit_of_a_weight_is_found_even_where_no_output_shows_it(
    flipped: tuple[str, int], weight: str
) -> None:
    name, bit = flipped
    wrong = native(name)
    flip(wrong, weight, bit)
    found = kv.verify(native(name), wrong)
    assert found.status == "different"
    assert weight in "".join([found.detail or "", *found.notes])


def test_a_tolerance_that_is_asked_for_holds_for_weights_too() -> None:
    wrong = native("llama_static")
    flip(wrong, "model.layers.1.mlp.down_proj.weight", 0)
    assert kv.verify(native("llama_static"), wrong).status == "different"
    found = kv.verify(native("llama_static"), wrong, rtol=1e-4)
    assert found.status == "equal"
    assert "down_proj" in " ".join(found.notes)


LINEAR = """
g (float[B, 3, 11, 5] past, float[B, 3, L, 5] update, int64[B] start)
    => (float[B, 3, 11, 5] present)
{ present = TensorScatter <axis = 2> (past, update, start) }
"""
CIRCULAR = LINEAR.replace("axis = 2", 'axis = 2, mode = "circular"')


def with_start(text: str, lines: str) -> str:
    """Return `text` with `lines` computing `at`, at which the scatter then writes."""
    return (
        text.replace("{ present", "{ " + lines + " present")
        .replace(", start)\n}", ", at) }")
        .replace("update, start) }", "update, at) }")
    )


SCATTER_ND = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 11, 5] past, float[B, L, 5] update, int64[B] start) => (float[B, 11, 5] present)
{
  zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
  minus = Constant <value_ints = [-1]> () unit = Constant <value_ints = [1]> ()
  size = Constant <value_int = 11> ()
  shape = Shape <end = 2> (update)
  b = Shape <start = 0, end = 1> (update) l = Shape <start = 1, end = 2> (update)
  b0 = Squeeze (b) l0 = Squeeze (l)
  rows = Range (zero, l0, one)
  column = Unsqueeze (start, unit)
  at = Add (column, rows)
  sequences = Range (zero, b0, one)
  upright = Unsqueeze (sequences, unit)
  batch = Expand (upright, shape)
  index_b = Unsqueeze (BATCH, minus) index_l = Unsqueeze (AT, minus)
  index = Concat <axis = -1> (index_b, index_l)
  present = ScatterND (past, index, update)
}
"""
ND = SCATTER_ND.replace("BATCH", "batch").replace("AT", "at")
ND_CIRCULAR = SCATTER_ND.replace("BATCH", "batch").replace(
    "index_l = Unsqueeze (AT", "wrapped = Mod (at, size) index_l = Unsqueeze (wrapped"
)
ND_CLAMPED = SCATTER_ND.replace("BATCH", "batch").replace(
    "index_l = Unsqueeze (AT",
    "last = Sub (size, one) low = Min (at, last) index_l = Unsqueeze (low",
)
THREE = (
    LINEAR.replace("B, 3, 11, 5", "B, 11, 5")
    .replace("B, 3, L, 5", "B, L, 5")
    .replace("axis = 2", "axis = 1")
)
THREE_CIRCULAR = THREE.replace("axis = 1", 'axis = 1, mode = "circular"')

SMALL: dict[str, tuple[str, str]] = {
    "an index off by one": (
        LINEAR,
        with_start(LINEAR, "one = Constant <value_ints = [1]> () at = Sub (start, one)"),
    ),
    "another axis": (
        LINEAR.replace("11, 5", "5, 5"),
        LINEAR.replace("11, 5", "5, 5").replace("axis = 2", "axis = 3"),
    ),
    "circular taken as linear": (CIRCULAR, LINEAR),
    "circular taken as linear, and the start brought back into the cache": (
        CIRCULAR,
        with_start(LINEAR, "size = Constant <value_ints = [11]> () at = Mod (start, size)"),
    ),
    "circular rows that stay at the end where they should wrap": (ND_CIRCULAR, ND_CLAMPED),
    "a circular TensorScatter and a scatter that stays at the end": (THREE_CIRCULAR, ND_CLAMPED),
    "a circular TensorScatter and a scatter that does not wrap": (THREE_CIRCULAR, ND),
    "a scatter that wraps by another size": (
        ND_CIRCULAR,
        ND_CIRCULAR.replace("value_int = 11", "value_int = 10"),
    ),
    "the batch of an index tuple ignored": (
        ND,
        ND.replace("batch = Expand", "none = Sub (upright, upright) batch = Expand").replace(
            "Expand (upright", "Expand (none"
        ),
    ),
    "starts of a batch ignored": (
        LINEAR,
        with_start(
            LINEAR,
            "zero = Constant <value_ints = [0]> () first = Gather (start, zero)"
            " shape = Shape (start) at = Expand (first, shape)",
        ),
    ),
    "starts left out": (LINEAR, LINEAR.replace("(past, update, start)", "(past, update)")),
    "rows in reverse": (
        LINEAR,
        LINEAR.replace(
            "{ present",
            "{ a = Constant <value_ints = [2]> () m = Constant <value_ints = [-1]> ()"
            " end = Constant <value_ints = [-100]> () r = Slice (update, m, end, a, m) present",
        ).replace("(past, update,", "(past, r,"),
    ),
}


@pytest.mark.parametrize(("right", "wrong"), SMALL.values(), ids=SMALL)
def test_a_fault_in_a_small_model_is_found(right: str, wrong: str) -> None:
    found = kv.verify(model(right), model(wrong))
    assert found.status == "different", found.detail
    assert kv.verify(model(wrong), model(right)).status == "different"


def test_a_fault_behind_the_end_of_a_circular_cache_needs_a_case_there() -> None:
    clamped = with_start(LINEAR, "last = Constant <value_ints = [6]> () at = Min (start, last)")
    before = kv.verify(model(CIRCULAR), model(clamped), cases=3, steps=0)
    assert before.status == "equal"
    found = kv.verify(model(CIRCULAR), model(clamped), steps=0)
    assert found.status == "different"
    assert "rows up to the end of the cache" in (found.detail or "")


BY_POSITION = """
g (float[B, 5, 3] past, float[B, L, 3] update, int64[B, L] position_ids) => (float[B, 5, 3] present)
{
  zero = Constant <value_int = 0> ()
  start = Gather <axis = 1> (position_ids, zero)
  present = TensorScatter <axis = 1, mode = "circular"> (past, update, start)
}
"""


@pytest.mark.parametrize("rows", [0, 9, 64])
def test_positions_drive_a_circular_cache_past_its_end(rows: int) -> None:
    """Whatever a table of positions leaves room for."""
    text = BY_POSITION
    if rows:
        table = f"<float[{rows}] t = {{{', '.join('0' * rows)}}}>"
        text = text.replace("present)\n{", f"present, float[B, L] angle)\n{table}\n{{").replace(
            "start = ", "angle = Gather (t, position_ids) start = "
        )
    # Rows that cross the end are written up to it and then to nowhere.
    wrong = text.replace(
        "present = TensorScatter",
        "size = Constant <value_ints = [5]> () at = Mod (start, size)"
        " n = Constant <value_ints = [1]> () l = Shape <start = 1, end = 2> (update)"
        " last = Sub (size, l) low = Min (at, last) present = TensorScatter",
    ).replace("update, start)", "update, low)")
    assert wrong != text
    assert kv.verify(model(text), model(wrong), steps=0).status == "different"
    assert kv.verify(model(text), model(wrong), steps=0, cases=1).status == "equal"


STATELESS_MASK = """
<ir_version: 10, opset_import: ["": 23]>
g (float[B, H, L, 8] q, float[B, H, T, 8] k, float[B, H, T, 8] v, bool[B, 1, L, T] mask)
    => (float[B, H, L, 8] y)
{ y = Attention (q, k, v, mask) }
"""


def test_a_dropped_mask_is_found() -> None:
    found = kv.verify(
        model(STATELESS_MASK), model(STATELESS_MASK.replace("(q, k, v, mask)", "(q, k, v)"))
    )
    assert found.status == "different"


# Equal pairs.


def rename_values(source: ir.Model) -> None:
    for index, node in enumerate(source.graph):
        node.name = f"node {index}"
        for place, value in enumerate(node.outputs):
            if not value.is_graph_output():
                value.name = f"v{index}.{place}"
    for index, value in enumerate(list(source.graph.initializers.values())):
        value.name = f"w{index}"


def reorder_nodes(source: ir.Model) -> None:
    """Move each node in front of its first reader that allows it: the order from the outputs."""
    order: dict[ir.Node, None] = {}

    def visit(node: ir.Node) -> None:
        if node in order:
            return
        for value in reversed(node.inputs):
            if value is not None and (producer := value.producer()) is not None:
                visit(producer)
        order[node] = None

    for output in reversed(source.graph.outputs):
        producer = output.producer()
        assert producer is not None
        visit(producer)
    ordered = list(order)
    assert ordered != list(source.graph)
    source.graph.remove(list(source.graph))
    source.graph.extend(ordered)


def constants_for_initializers(source: ir.Model) -> None:
    for value in list(source.graph.initializers.values())[::2]:
        node = ir.node("Constant", [], {"value": value.const_value})
        source.graph.insert_before(source.graph[0], node)
        value.replace_all_uses_with(node.outputs[0])
        del source.graph.initializers[value.name]


def relabel(source: ir.Model) -> None:
    source.opset_imports[""] = 25


def copy_a_cache_first(source: ir.Model) -> None:
    scatter = nodes(source, "TensorScatter")[0]
    copy = ir.node("Identity", [scatter.inputs[0]])
    source.graph.insert_before(scatter, copy)
    scatter.replace_input_with(0, copy.outputs[0])


@part(2)
@pytest.mark.parametrize(
    "change",
    [rename_values, reorder_nodes, constants_for_initializers, relabel, copy_a_cache_first],
)
@pytest.mark.parametrize("name", ["llama_static", "gemma4_hybrid_static"])
def test_what_changes_no_value_is_equal(name: str, change: Change) -> None:
    changed = clone(native(name))
    change(changed)
    found = kv.verify(native(name), changed)
    assert (found.status, found.detail) == ("equal", None)
    assert all(output.bit_equal for output in found.outputs)


@part(8)
@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("opset", [13, 18, 23])
@whichever_comes_first
def test_a_lowered_decoder_is_equal(name: str, opset: int, first: int) -> None:
    models = [native(name), kv.lower(native(name), opset=opset, verify=False)[0]]
    found = kv.verify(models[first], models[1 - first])
    assert found.status == "equal", found.detail


EQUAL: dict[str, tuple[str, str]] = {
    "a scatter and what it was lowered to": (THREE, ND),
    "a circular scatter and what it was lowered to": (THREE_CIRCULAR, ND_CIRCULAR),
    "a circular start that is brought back into the cache first": (
        CIRCULAR,
        with_start(CIRCULAR, "size = Constant <value_ints = [11]> () at = Mod (start, size)"),
    ),
    "an axis counted from the end": (LINEAR, LINEAR.replace("axis = 2", "axis = -2")),
    "a default written out": (LINEAR, LINEAR.replace("axis = 2", 'axis = 2, mode = "linear"')),
}


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_small_models_that_mean_the_same_are_equal(one: str, other: str) -> None:
    for pair in ((one, other), (other, one)):
        found = kv.verify(*map(model, pair))
        assert found.status == "equal", found.detail
        assert [output.bit_equal for output in found.outputs] == [True]


def test_the_text_helpers_change_what_they_should() -> None:
    assert re.search(r"at = .*update, at\)", with_start(LINEAR, "at = Identity (start)"), re.DOTALL)
