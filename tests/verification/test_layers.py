"""Models with fewer layers: one of each kind stays, whatever the fault."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.verification.shrinking.alike_layers import thinned
from onnx_kvtool.verification.shrinking.drawn_weights import skeleton
from tests.grids import part
from tests.runtime.recorded import model
from tests.verification.test_shrinking import compared

LAYERS = 7


@functools.cache
def _deep(opset: int) -> ir.Model:
    if opset == 24:
        return ir.from_proto(decoder(LAYERS, hidden=96, heads=6, kv_heads=2, capacity=40))
    return kv.lower(_deep(24), opset=opset, verify=False)[0]


def deep(opset: int = 24) -> ir.Model:
    return clone(_deep(opset))


def left(a: ir.Model, b: ir.Model, most: int = 2) -> list[str] | None:
    """Return the caches of copies of two models."""
    found = thinned(skeleton(a, "A"), skeleton(b, "B"), most)
    if found is None:
        return None
    for side in (found.a, found.b):
        names = [value.name for value in side.message.graph.input]
        assert names == [value.name for value in found.a.message.graph.input]
    return [name for name in names if name.endswith(".key")]


@pytest.mark.parametrize("opset", [24, 18, 13])
@pytest.mark.parametrize(("most", "expected"), [(1, (0, 1)), (2, (0, 1, 2)), (9, None)])
def test_two_layers_of_each_kind_are_left_behind_the_first(
    opset: int, most: int, expected: tuple[int, ...] | None
) -> None:
    source = deep()
    other = source if opset == 24 else deep(opset)
    caches = None if expected is None else [f"past.{i}.key" for i in expected]
    assert left(source, other, most) == caches


def node(source: ir.Model, name: str) -> ir.Node:
    return next(node for node in source.graph if node.name.startswith(name))


def add_one_to_a_start(source: ir.Model) -> None:
    scatter = node(source, "present.5.value/")
    value = ir.Value(name="one", const_value=ir.tensor(np.array([1], np.int64), name="one"))
    value.dtype, value.shape = ir.DataType.INT64, ir.Shape([1])
    source.graph.initializers.add(value)
    late = ir.node("Add", [scatter.inputs[2], value])
    source.graph.insert_before(scatter, late)
    scatter.replace_input_with(2, late.outputs[0])


def read_the_cache_of_the_layer_before(source: ir.Model) -> None:
    node(source, "layers.4.attention/").replace_input_with(
        1, node(source, "present.3.key/").outputs[0]
    )


def write_into_the_cache_of_the_next(source: ir.Model) -> None:
    one, other = node(source, "present.4.key/"), node(source, "present.5.key/")
    first, second = one.inputs[0], other.inputs[0]
    one.replace_input_with(0, second)
    other.replace_input_with(0, first)


def take_weights_of_the_layer_before(source: ir.Model) -> None:
    node(source, "layers.5.k/").replace_input_with(1, node(source, "layers.4.k/").inputs[1])


def leave_out_a_residual(source: ir.Model) -> None:
    add = node(source, "layers.4.residual1/")
    add.outputs[0].replace_all_uses_with(add.inputs[1])


def read_a_residual_of_long_ago(source: ir.Model) -> None:
    node(source, "layers.5.residual1/").replace_input_with(
        0, node(source, "layers.3.residual2/").outputs[0]
    )


def leave_out_a_layer(source: ir.Model) -> None:
    before, after = (node(source, f"layers.{i}.residual2/").outputs[0] for i in (3, 4))
    after.replace_all_uses_with(before)


def forget_the_valid_length(source: ir.Model) -> None:
    node(source, "layers.5.attention/").replace_input_with(6, None)


FAULTS = [
    add_one_to_a_start,
    forget_the_valid_length,
    leave_out_a_layer,
    leave_out_a_residual,
    read_a_residual_of_long_ago,
    read_the_cache_of_the_layer_before,
    take_weights_of_the_layer_before,
    write_into_the_cache_of_the_next,
]


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_lowered", [False, True], ids=["native", "lowered"])
def test_a_fault_in_one_layer_stays(fault: Callable[[ir.Model], None], is_lowered: bool) -> None:
    source = deep()
    wrong = clone(source)
    fault(wrong)
    if is_lowered:
        wrong, _ = kv.lower(wrong, opset=18, verify=False)
    # A layer without readers is removed, with weights that a copy of the source still has.
    is_struck = is_lowered and fault is leave_out_a_layer
    assert compared(source, wrong).status == ("unrunnable" if is_struck else "different")


@pytest.mark.long
def test_a_constant_of_one_layer_stays() -> None:
    source, lowered = deep(), deep(18)
    names = [value.name for value in lowered.graph.initializers.values() if value.dtype is not None]
    assert any((name or "").startswith("kvtool/number") for name in names)
    product = node(lowered, "layers.5.attention/Attention/scaled")
    value = ir.Value(name="s", const_value=ir.tensor(np.array(0.2, np.float32), name="s"))
    value.dtype, value.shape = ir.DataType.FLOAT, ir.Shape([])
    lowered.graph.initializers.add(value)
    product.replace_input_with(1, value)
    assert "past.5.key" in (left(source, lowered) or [])
    assert compared(source, lowered).status == "different"


CHAIN = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 96] x) => (float[B, 96] y)
<float[96, 96] w0, float[96, 96] w1, float[96, 96] w2, float[96, 96] w3, float[96, 96] w4>
{ BODY }
"""


def chain(body: str) -> ir.Model:
    source = model(CHAIN.split("<float[96, 96] w0", maxsplit=1)[0] + "{ " + body + " }")
    rng = np.random.default_rng(0)
    for i in range(6):
        tensor = ir.tensor(rng.standard_normal((96, 96)).astype(np.float32) / 10, name=f"w{i}")
        value = ir.Value(name=f"w{i}", const_value=tensor, type=ir.TensorType(ir.DataType.FLOAT))
        source.graph.initializers.add(value)
        for one in source.graph:
            for index, used in enumerate(one.inputs):
                if used is not None and used.name == f"w{i}":
                    one.replace_input_with(index, value)
    return source


def residuals(scale: str) -> str:
    """Return layers `x + x w`, scaled after the products of `scale` at odd and even places."""
    lines, x = [], "x"
    for i in range(6):
        end = "y" if i == 5 else f"x{i}"
        lines.append(f"p{i} = MatMul ({x}, w{i}) {end} = Add ({x}, p{i})")
        x = end
    return scale + " ".join(lines)


@pytest.mark.long
def test_layers_that_are_right_together_only_are_all_run() -> None:
    plain = chain(residuals(""))
    # Every second value between layers is twice what the other model has.
    lines, x = ["two = Constant <value_float = 2.0> ()"], "x"
    for i in range(6):
        end = "y" if i == 5 else f"x{i}"
        if i % 2:
            lines.append(
                f"h{i} = Div ({x}, two) p{i} = MatMul (h{i}, w{i}) {end} = Add (h{i}, p{i})"
            )
        else:
            lines.append(
                f"p{i} = MatMul ({x}, w{i}) s{i} = Add ({x}, p{i}) {end} = Mul (s{i}, two)"
            )
        x = end
    found = compared(plain, chain(" ".join(lines)))
    assert (found.status, [s.what for s in found.shrunken]) == ("equal", ["widths"])


@pytest.mark.long
def test_what_is_left_of_layers_is_reported() -> None:
    source, lowered = deep(), deep(18)
    found = kv.verify(source, lowered, verify_budget=f"{1 << 20}")
    assert (found.status, found.shrunk) == ("equal", True)
    assert found.to_json()["shrunken"][0] == {"what": "blocks that are alike", "from": 12, "to": 4}
    assert found.notes[0].startswith("verified on copies with 4 of 12 blocks that are alike")
    # Values between layers are compared, and are none of the models' outputs.
    assert [o.name for o in found.outputs] == [v.name for v in source.graph.outputs]
    assert None not in {output.bit_equal for output in found.outputs}
    assert list(found.covered.tolerance) == [v.name for v in source.graph.outputs]
    assert found.covered.noticed == found.covered.places > 0
    assert Budget.parse("1GiB,30s") == Budget(1 << 30, 30.0)
