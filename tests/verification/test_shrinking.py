"""Copies with smaller weights: equal where the models are, and with every fault of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from benchmarks.real_models.configuration import CONFIGURATIONS, tiny
from benchmarks.real_models.writer import write
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.verification.affordable import Large, compare_shrunk, weight_bytes
from onnx_kvtool.verification.report import Settings, VerifyReport
from onnx_kvtool.verification.shrinking.drawn_weights import (
    Quantised,
    hides,
    quantised_of,
    skeleton,
)
from onnx_kvtool.verification.shrinking.shrink import CannotShrink, Pair, shrink
from tests.grids import each, part, rest
from tests.runtime.recorded import model, native

pytestmark = pytest.mark.long


HIDDEN = 256


def native_decoder(rank: int = 3) -> ir.Model:
    return ir.from_proto(decoder(2, hidden=HIDDEN, rank=rank))


def compared(a: ir.Model, b: ir.Model) -> VerifyReport:
    return compare_shrunk(Large(a, "A"), Large(b, "B"), Settings())


def shrunk(a: ir.Model, b: ir.Model, most: int = 1 << 26) -> Pair:
    return shrink(skeleton(a, "A"), skeleton(b, "B"), 0, most)


def dims(source: ir.Model, name: str) -> tuple[int, ...]:
    value = source.graph.initializers[name].const_value
    assert value is not None
    return tuple(value.shape.numpy())


@part(3)
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("opset", [13, 18, 23])
def test_a_lowered_decoder_is_equal_on_small_copies(rank: int, opset: int) -> None:
    source = native_decoder(rank)
    lowered, _ = kv.lower(source, opset=opset, verify=False)
    found = compared(source, lowered)
    assert (found.status, found.detail, found.shrunk) == ("equal", None, True)
    assert "widths" in {entry.what for entry in found.shrunken}
    assert "verified on copies with " in found.notes[0]
    pair = shrunk(source, lowered)
    for copy in (pair.a, pair.b):
        assert weight_bytes(copy) < weight_bytes(source) / 8
        # Two groups of two heads of two halves of 32.
        query, key = dims(copy, "layers.1.q.weight"), dims(copy, "layers.1.k.weight")
        assert (query[0], key[0]) == (24, 24)
        assert query[1] == 2 * key[1] <= 24
        assert dims(copy, "layers.1.o.weight")[1] == 24
        assert dims(copy, "layers.1.up.weight") == (24, 24)
        assert copy.graph.inputs[0].shape == ir.Shape(["batch", "sequence_len", 24])
        assert copy.graph.outputs[-1].shape == ir.Shape(["batch", "sequence_len", 24])


@pytest.mark.parametrize(
    "name", ["gemma4_hybrid_static", *rest("llama_static_fp16", "mistral_sliding_bias_static")]
)
def test_a_real_decoder_shrinks_and_stays_equal(name: str) -> None:
    source = native(name)
    lowered, _ = kv.lower(source, opset=18, verify=False)
    found = compared(source, lowered)
    assert (found.status, found.cases) == ("equal", 4)
    copy = shrunk(source, lowered).a
    table = "model.embed_tokens.weight"
    # The vocabulary; a hidden size of 64 is small enough.
    assert dims(copy, table) == (24, 64)
    assert dims(source, table) == (256, 64)


def nodes(source: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in source.graph if node.op_type == op_type]


def add_one_to_starts(source: ir.Model) -> None:
    scatter = nodes(source, "TensorScatter")[-1]
    tensor = ir.tensor(np.array([1], np.int64), name="one")
    value = ir.Value(name="one", const_value=tensor, type=ir.TensorType(ir.DataType.INT64))
    source.graph.initializers.add(value)
    late = ir.node("Add", [scatter.inputs[2], value])
    source.graph.insert_before(scatter, late)
    scatter.replace_input_with(2, late.outputs[0])


def take_weights_of_another_layer(source: ir.Model) -> None:
    first, second = (
        next(node for node in source.graph if node.name == f"layers.{i}.k/MatMul") for i in (0, 1)
    )
    second.replace_input_with(1, first.inputs[1])


def leave_out_a_residual(source: ir.Model) -> None:
    add = next(node for node in source.graph if node.name == "layers.1.residual1/Add")
    add.outputs[0].replace_all_uses_with(add.inputs[1])


def leave_out_a_normalisation(source: ir.Model) -> None:
    norm = next(node for node in source.graph if node.name == "layers.1.norm2/RMSNormalization")
    norm.outputs[0].replace_all_uses_with(norm.inputs[0])


def write_circularly(source: ir.Model) -> None:
    for scatter in nodes(source, "TensorScatter"):
        scatter.attributes["mode"] = ir.AttrString("mode", "circular")


def forget_the_valid_length(source: ir.Model) -> None:
    nodes(source, "Attention")[-1].replace_input_with(6, None)


def swap_cosine_and_sine(source: ir.Model) -> None:
    rotary = nodes(source, "RotaryEmbedding")[0]
    cosine, sine = rotary.inputs[1:3]
    rotary.replace_input_with(1, sine)
    rotary.replace_input_with(2, cosine)


def flip_a_bit(source: ir.Model) -> None:
    value = source.graph.initializers["layers.1.up.weight"]
    assert value.const_value is not None
    array = value.const_value.numpy().copy()
    array.view(np.uint32)[3, 5] ^= 1 << 28
    value.const_value = ir.tensor(array, name=value.name)


FAULTS = [
    add_one_to_starts,
    take_weights_of_another_layer,
    leave_out_a_residual,
    leave_out_a_normalisation,
    write_circularly,
    forget_the_valid_length,
    swap_cosine_and_sine,
]


@part(4)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_lowered", [False, True], ids=["native", "lowered"])
def test_a_fault_shows_in_the_small_copies(
    fault: Callable[[ir.Model], None], is_lowered: bool
) -> None:
    source = native_decoder()
    wrong = clone(source)
    fault(wrong)
    if is_lowered:
        wrong, _ = kv.lower(wrong, opset=18, verify=False)
    found = compared(source, wrong)
    if is_lowered and fault is leave_out_a_normalisation:
        # Lowering removes the node that nobody reads, and its weight, which the source reads.
        assert (found.status, found.detail) == (
            "unrunnable",
            "weight `layers.1.norm2.weight` of A is not in B",
        )
        return
    assert found.status == "different"
    # Models that are the same but for what a node reads differ without a run.
    assert found.shrunk or (fault is take_weights_of_another_layer and not is_lowered)


WIDE = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 128] x) => (float[B, 96] y)
<float[128, 96] w = {0}>
{ BODY }
"""


def wide(body: str, integers: str = "", **weights: tuple[int, ...]) -> ir.Model:
    source = model(WIDE.replace("<float[128, 96] w = {0}>", integers).replace("BODY", body))
    rng = np.random.default_rng(0)
    for name, shape in {"w": (128, 96), **weights}.items():
        tensor = ir.tensor(rng.standard_normal(shape).astype(np.float32), name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(ir.DataType.FLOAT))
        source.graph.initializers.add(value)
        for node in source.graph:
            for index, used in enumerate(node.inputs):
                if used is not None and used.name == name:
                    node.replace_input_with(index, value)
    return source


SPLIT = """
b = Shape <start = 0, end = 1> (x) h = Constant <value_ints = [8]> ()
m = Constant <value_ints = [-1]> () t = Concat <axis = 0> (b, h, m) r = Reshape (x, t)
"""
"""(B, 8, 16), as a shape says that is put together when the model runs."""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("y = MatMul (x, w)", (24, 32), id="a product depends on no size"),
        pytest.param(
            "s = Constant <value_ints = [-1, 8, 16]> () r = Reshape (x, s)"
            " t = Constant <value_ints = [-1, 128]> () f = Reshape (r, t) y = MatMul (f, w)",
            (6, 24),
            id="what is split into heads shrinks in its parts",
        ),
        pytest.param(
            "s = Constant <value_ints = [0, -1]> () r = Reshape (x, s) y = MatMul (r, w)",
            (24, 32),
            id="a size that a reshape computes follows",
        ),
        pytest.param(
            "s = Constant <value_ints = [0, -1, 16]> () r = Reshape (x, s)"
            " t = Constant <value_ints = [0, -1]> () f = Reshape (r, t) y = MatMul (f, w)",
            (6, 24),
            id="what is left beside a part is a part",
        ),
        pytest.param(
            f"{SPLIT} u = Concat <axis = 0> (b, m) f = Reshape (r, u) y = MatMul (f, w)",
            (6, 24),
            id="what is split by a computed shape shrinks in its parts",
        ),
        pytest.param(
            "g = Shape (x) i = Constant <value_int = 0> () j = Gather (g, i)"
            " z = Constant <value_ints = [0]> () b = Unsqueeze (j, z)"
            " e = Constant <value_ints = [1]> ()"
            " n = Constant <value_ints = [9223372036854775807]> () d = Slice (g, e, n)"
            " t = Concat <axis = 0> (b, d) f = Reshape (x, t) y = MatMul (f, w)",
            (24, 32),
            id="a shape that is taken apart and put together follows",
        ),
        pytest.param(
            "b = Shape <start = 0, end = 1> (x) d = Shape <start = 1> (x)"
            " t = Concat <axis = 0> (b, d) a = Constant <value_ints = [1]> ()"
            " s = ReduceMean (x, a) e = Expand (s, t) y = MatMul (e, w)",
            (24, 32),
            id="what is as large as something else follows",
        ),
        pytest.param(
            f"{SPLIT} k = Cast <to = 1> (t) s = ReduceMax <keepdims = 0> (k) q = Div (r, s)"
            " u = Concat <axis = 0> (b, m) f = Reshape (q, u) y = MatMul (f, w)",
            (24, 24),
            id="a number of a shape that is computed with stays",
        ),
        pytest.param(
            "a = Constant <value_ints = [1]> () n = Constant <value_ints = [100]> ()"
            " z = Constant <value_ints = [0]> () p = MatMul (x, w)"
            " c = Slice (p, z, n, a) y = Identity (c)",
            (24, 96),
            id="what is cut stays",
        ),
        pytest.param(
            "p = MatMul (x, w) i = Constant <value_ints = [95, 0]> () y = Gather <axis = 1> (p, i)",
            (24, 96),
            id="what constants index stays",
        ),
        pytest.param(
            "p = MatMul (x, w) q = Hardmax (p) y = Identity (q)",
            (24, 96),
            id="what an operator of no rule reads stays",
        ),
    ],
)
def test_a_size_changes_only_where_no_operator_depends_on_it(
    body: str, expected: tuple[int, int]
) -> None:
    pair = shrunk(wide(body), wide(body))
    assert dims(pair.a, "w") == dims(pair.b, "w") == expected
    assert compared(wide(body), wide(body)).status == "equal"


def test_a_size_stays_if_one_model_alone_depends_on_it() -> None:
    plain, cut = "y = MatMul (x, w)", "p = MatMul (x, w) q = Hardmax (p) y = Mul (p, q)"
    pair = shrunk(wide(plain), wide(cut))
    assert dims(pair.a, "w") == dims(pair.b, "w") == (24, 96)


def test_a_size_stays_if_one_model_computed_a_number_from_it() -> None:
    mean = (
        "a = Constant <value_ints = [1]> () m = ReduceMean (x, a) c = Sub (x, m) y = MatMul (c, w)"
    )
    total = mean.replace(
        "m = ReduceMean (x, a)",
        f"k = Constant <value_float = {1 / 128}> () n = ReduceSum (x, a) m = Mul (n, k)",
    )
    found = compared(wide(mean), wide(total))
    assert found.status == "equal"
    assert dims(shrunk(wide(mean), wide(total)).b, "w") == (128, 24)
    assert dims(shrunk(wide(mean), wide(mean)).b, "w") == (24, 32)


def test_a_number_that_was_rounded_still_tells_the_size_it_comes_from() -> None:
    """1/96 in bfloat16 is 0.2 % off."""
    mean = "p = MatMul (x, w) a = Constant <value_ints = [1]> () y = ReduceMean (p, a)"
    rounded = float(np.float32(1 / 96).astype(ml_dtypes.bfloat16))
    total = mean.replace(
        "y = ReduceMean (p, a)",
        f"k = Constant <value_float = {rounded}> () n = ReduceSum (p, a) y = Mul (n, k)",
    )
    assert dims(shrunk(wide(mean), wide(total)).a, "w") == (24, 96)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_scale_that_one_model_holds_rounded_keeps_no_size(dtype: str, tmp_path: Path) -> None:
    """1/sqrt(32) is an attribute of Attention, and a constant of 16 bits in what it becomes."""
    configuration = replace(tiny(CONFIGURATIONS["llama-7b-fp16"]), head_size=32, dtype=dtype)
    source = kv.load(write(configuration, tmp_path))
    lowered, _ = kv.lower(source, opset=18, verify=False)
    found = compared(source, lowered)
    assert (found.status, found.detail) == ("equal", None)
    assert "elements of a head" in {entry.what for entry in found.shrunken}


def test_one_constant_may_be_two_sizes() -> None:
    """Eight heads of two halves of eight; where one 8 is both, they get sizes of their own."""
    integers = "<int64[1] n = {8}, int64[1] two = {2}, int64[2] flat = {0, -1}>"
    body = (
        "b = Shape <start = 0, end = 1> (x) t = Concat <axis = 0> (b, n, two, n)"
        " r = Reshape (x, t) f = Reshape (r, flat) y = MatMul (f, w)"
    )
    pair = shrunk(wide(body, integers), wide(body, integers))
    assert dims(pair.a, "w") == dims(pair.b, "w") == (3 * 2 * 2, 24)
    assert compared(wide(body, integers), wide(body, integers)).status == "equal"


def test_a_weight_that_differs_is_a_difference_of_models_that_are_alike() -> None:
    wrong = clone(native_decoder())
    flip_a_bit(wrong)
    found = compared(native_decoder(), wrong)
    assert (found.status, found.steps) == ("different", 0)
    assert "initializer `layers.1.up.weight` at [3, 5] is " in (found.detail or "")


def test_no_copies_are_made_of_models_with_other_weights() -> None:
    wrong = clone(native_decoder())
    flip_a_bit(wrong)
    lowered, _ = kv.lower(wrong, opset=18, verify=False)
    found = compared(native_decoder(), lowered)
    assert (found.status, found.detail) == (
        "unrunnable",
        "weight `layers.1.up.weight` differs between A and B",
    )
    # A sum of two weights that one model computes and the other has folded.
    one = wide("v = Add (w, u) y = MatMul (x, v)", u=(128, 96))
    other = wide("y = MatMul (x, v)", v=(128, 96))
    found = compared(one, other)
    assert (found.status, found.detail) == ("unrunnable", "weight `u` of A is not in B")


@pytest.mark.parametrize(
    "unread",
    ["v = Add (w, u) y = MatMul (x, w)", "z = MatMul (x, u) v = Relu (z) y = MatMul (x, w)"],
    ids=["of weights", "of an input"],
)
def test_what_nobody_reads_is_no_part_of_a_model(unread: str) -> None:
    one, other = wide(unread, u=(128, 96)), wide("y = MatMul (x, w)")
    for pair in ((one, other), (other, one)):
        found = compared(*pair)
        assert (found.status, found.shrunk) == ("equal", True), found.detail
    assert compared(one, wide("z = MatMul (x, w) y = Neg (z)")).status == "different"


def test_a_weight_that_a_body_alone_reads_is_part_of_a_model() -> None:
    body = (
        "c = Constant <value = bool {1}> () y = If (c) <"
        "then_branch = t () => (float[B, 96] a) { a = MatMul (x, w) }, "
        "else_branch = e () => (float[B, 96] b) { b = MatMul (x, u) }>"
    )
    found = compared(wide(body, u=(128, 96)), wide("y = MatMul (x, w)"))
    assert (found.status, found.detail) == ("unrunnable", "weight `u` of A is not in B")


def test_small_copies_of_weights_that_do_not_shrink_cannot_be_made() -> None:
    body = "p = MatMul (x, w) q = Hardmax (p) y = Identity (q)"
    pair = shrunk(wide(body), wide(body))  # 24 x 96
    assert weight_bytes(pair.a) == 24 * 96 * 4
    split = "q = Hardmax (w) y = MatMul (x, q)"
    with pytest.raises(CannotShrink, match="would still take 48 KiB, more than 16 KiB"):
        shrunk(wide(split), wide(split), 1 << 14)
    settings = Settings(budget=Budget(6 << 14))
    found = compare_shrunk(Large(wide(split), "A"), Large(wide(split), "B"), settings)
    assert (found.status, found.needed) == ("unrunnable", 6 * 48 << 10)


def test_a_node_without_inputs_keeps_sizes() -> None:
    body = "p = MatMul (x, w) q = Concat <axis = 0> () y = Identity (p)"
    assert shrunk(wide(body), wide(body)).shrunken


def test_a_weight_in_a_body_has_no_skeleton() -> None:
    source = model(
        "g (bool c, float[2] x) => (float[2] y) { y = If (c) <"
        "then_branch = t () => (float[2] a) { a = Identity (x) },"
        "else_branch = e () => (float[2] b) { b = Neg (x) }> }"
    )
    body = next(iter(source.graph)).attributes["then_branch"].as_graph()
    tensor = ir.ExternalTensor("w.bin", 0, 8, ir.DataType.FLOAT, shape=ir.Shape([2]), name="w")
    body.initializers.add(ir.Value(name="w", const_value=tensor, type=ir.TensorType(tensor.dtype)))
    with pytest.raises(KvtoolError, match="has its own weight, `w`"):
        skeleton(source, "A")


def test_no_weight_is_read_that_lies_in_one_place_for_both(tmp_path: Path) -> None:
    source = wide("y = MatMul (x, w)")
    tensor = ir.ExternalTensor(
        "not-there.bin", 0, 128 * 96 * 4, ir.DataType.FLOAT, shape=ir.Shape([128, 96]),
        name="w", base_dir=str(tmp_path),
    )  # fmt: skip
    source.graph.initializers["w"].const_value = tensor
    found = compared(source, clone(source))
    assert found.status == "equal"


def test_verify_shrinks_what_does_not_fit_into_the_budget() -> None:
    source = native_decoder()
    lowered, _ = kv.lower(source, opset=18, verify=False)
    assert not kv.verify(source, lowered).shrunk
    found = kv.verify(source, lowered, verify_budget="2MiB")
    assert (found.status, found.shrunk) == ("equal", True)
    wrong = clone(source)
    swap_cosine_and_sine(wrong)
    found = kv.verify(source, wrong, verify_budget="2MiB")
    assert (found.status, found.shrunk) == ("different", True)
    assert found.earliest is not None
    assert found.earliest.a.op == "RotaryEmbedding"


def test_a_mask_is_seen_where_there_is_room_for_one_sequence_alone() -> None:
    """One row more takes a few bytes more, and one row alone shows no causal mask."""
    source = ir.from_proto(decoder(2, hidden=HIDDEN, capacity=4096))
    wrong = clone(source)
    nodes(wrong, "Attention")[-1].attributes["is_causal"] = ir.AttrInt64("is_causal", 0)
    large = Large(source, "A"), Large(wrong, "B")
    needed = compare_shrunk(*large, Settings(budget=Budget(memory=1 << 20))).needed
    found = compare_shrunk(*large, Settings(budget=Budget(memory=needed)))
    assert (found.status, found.shrunk) == ("different", True)


def table(values: list[float], dtype: ir.DataType) -> ir.TensorProtocol:
    return ir.tensor(np.array(values, dtype.numpy()), dtype=dtype)


_F, _I = ir.DataType.FLOAT, ir.DataType.INT8


@each(
    ("name", "kept", "expected"),
    [
        pytest.param("weight", table([0, 0, 0], _F), True, id="a normalisation by zero"),
        pytest.param("weight", table([0, 0.1, 0], _F), False, id="one that is not zero"),
        pytest.param("weight", ir.tensor(np.float32(0)), False, id="an addend"),
        pytest.param("weight", table([0, 0, 0], _I), False, id="zero points"),
        pytest.param("values", table([0, 0, 0], _I), True, id="quantised values"),
        pytest.param("values", table([0, 5, 0], _I), False, id="quantised values, not zero"),
        pytest.param("scale", ir.tensor(np.float32(0)), True, id="a scale"),
    ],
)
def test_weights_that_hide_what_stands_before_them(
    name: str, kept: ir.TensorProtocol, expected: bool
) -> None:
    quantised = Quantised(frozenset({"values"}), {"scale": 1.0})
    assert hides(kept, name, quantised) is expected


def test_a_quantised_product_is_as_large_as_what_is_multiplied() -> None:
    """So that no layer is lost in what another one adds."""
    source = model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 96] x, int4[96, 96] w, float[3, 96] s) => (float[2, 96] y)
        { d = DequantizeLinear <axis = 0, block_size = 32> (w, s)
          y = MatMul (x, d) }"""
    )
    message = ir.to_proto(source)
    del message.graph.input[1:]
    types = {"w": (ir.DataType.INT4, [96, 96]), "s": (ir.DataType.FLOAT, [3, 96])}
    for name, (dtype, shape) in types.items():
        message.graph.initializer.add(name=name, data_type=int(dtype), dims=shape)
    quantised = quantised_of(message, {"w": [96, 96], "s": [3, 96]})
    assert (quantised.values, list(quantised.scales)) == ({"w"}, ["s"])
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 7, (96, 96), endpoint=True)
    product = rng.standard_normal((50, 96)) @ weights * quantised.scales["s"]
    assert 0.9 < product.std() < 1.1


def _four_bits(directory: Path) -> tuple[ir.Model, ir.Model]:
    """Return a decoder of int4 in blocks, and its form of opset 18, which has but the bytes."""
    configuration = replace(tiny(CONFIGURATIONS["qwen-0.5b-dq-int4"]), hidden=256, vocabulary=2048)
    source = kv.load(write(configuration, directory))
    return source, kv.lower(source, opset=18, verify=False)[0]


@pytest.mark.exhaustive
def test_bytes_follow_the_weights_that_they_hold(tmp_path: Path) -> None:
    source, lowered = _four_bits(tmp_path)
    found = compared(source, lowered)
    assert (found.status, found.shrunk) == ("equal", True)
    pair = shrunk(source, lowered)
    for name in ("lm_head.weight", "model.layers.1.mlp.up_proj.weight"):
        rows, columns = dims(pair.a, name)
        assert dims(pair.b, name) == (rows, columns // 2)
        assert rows < 256
        a, b = (copy.graph.initializers[name].const_value for copy in (pair.a, pair.b))
        assert a is not None and b is not None
        assert a.tobytes() == b.tobytes()


def test_a_fault_in_the_table_of_bytes_is_found(tmp_path: Path) -> None:
    source, lowered = _four_bits(tmp_path)
    (node,) = (n for n in lowered.graph if n.op_type == "Constant" and "of_byte" in (n.name or ""))
    table = node.attributes["value"].as_tensor().numpy().copy()
    table[0x37, 1] -= 1
    node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(table))
    assert compared(source, lowered).status == "different"
