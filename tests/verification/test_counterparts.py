"""Copies of decoders of onnxruntime's operators, against what they are rewritten to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import onnx_kvtool as kv
from benchmarks.growing_decoders import Size, growing_decoder
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.verification.affordable import Large, compare_shrunk
from onnx_kvtool.verification.report import Settings, VerifyReport
from onnx_kvtool.verification.shrinking.drawn_weights import skeleton, with_counterparts
from onnx_kvtool.verification.shrinking.shrink import CannotShrink, check_weights
from tests.grids import each, part

BLOCK = 32
LAYERS = 4


def genai_decoder(points: str | None = "zero points") -> ir.Model:
    """Return a decoder of GroupQueryAttention, SkipSimplifiedLayerNormalization and MatMulNBits.

    Args:
        points: `zero points`, which are stored, `middle`, which are not; None for float32 weights.
    """
    message = growing_decoder(Size(LAYERS, 256, 8, 4, 24), "contrib")
    if points is None:
        return ir.from_proto(message)
    draw = np.random.default_rng(0)
    held = {t.name: t for t in message.graph.initializer}
    for node in message.graph.node:
        if node.op_type != "MatMul":
            continue
        name = node.input[1]
        rows, columns = held[name].dims
        blocks = rows // BLOCK
        codes = {"q": (columns, blocks, BLOCK // 2), "z": (columns * blocks // 2,)}
        arrays = {k: draw.integers(0, 256, shape, np.uint8) for k, shape in codes.items()}
        arrays["s"] = draw.uniform(0.005, 0.01, columns * blocks).astype(np.float32)
        for kind, array in arrays.items():
            tensor = numpy_helper.from_array(array, f"{name}.{kind}")
            if tensor.name not in held:
                held[tensor.name] = tensor
                message.graph.initializer.append(tensor)
        parts = "qsz" if points == "zero points" else "qs"
        node.op_type, node.domain = "MatMulNBits", "com.microsoft"
        node.input[1:] = [f"{name}.{part}" for part in parts]
        for attribute, number in (("K", rows), ("N", columns), ("bits", 4), ("block_size", BLOCK)):
            node.attribute.append(helper.make_attribute(attribute, number))
    read = {name for node in message.graph.node for name in node.input}
    for tensor in [t for t in message.graph.initializer if t.name not in read]:
        message.graph.initializer.remove(tensor)
    return ir.from_proto(message)


def compared(a: ir.Model, b: ir.Model) -> VerifyReport:
    return compare_shrunk(Large(a, "A"), Large(b, "B"), Settings())


def standard(source: ir.Model, opset: int) -> ir.Model:
    return kv.lower(source, opset=opset, contrib="standard", verify=False)[0]


def raised(source: ir.Model) -> ir.Model:
    return kv.raise_(source, capacity=24, verify=False)[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("points", "rewritten"),
    [
        pytest.param("zero points", raised, id="int4, raised"),
        pytest.param("zero points", lambda m: standard(m, 13), id="int4, as bytes"),
        pytest.param("middle", raised, id="int4 of an implied zero point, raised"),
        pytest.param("middle", lambda m: standard(m, 13), id="int4 of such, as bytes"),
        pytest.param(None, raised, id="float32, raised"),
    ],
)
@part(5)
def test_a_decoder_of_contrib_operators_is_proven_by_few_small_layers(
    points: str | None, rewritten: Callable[[ir.Model], ir.Model]
) -> None:
    source = genai_decoder(points)
    result = rewritten(source)
    found = compared(source, result)
    assert (found.status, found.shrunk) == ("equal", True), found.detail
    shrunken = {entry.what: entry for entry in found.shrunken}
    # The first layer reads the inputs, the others are alike: two halves of each.
    assert shrunken["blocks that are alike"].after == 4
    assert rewritten is not raised or "heads" in shrunken
    assert rewritten is not raised or points is None or "blocks of weights" in shrunken
    wrong = clone(result)
    node = [n for n in wrong.graph if n.op_type == "Sigmoid"][LAYERS - 1]
    node.replace_input_with(0, node.inputs[0].producer().inputs[0])  # type: ignore[union-attr]
    assert compared(source, wrong).status == "different"


def codes(name: str, dtype: ir.DataType, *dims: int, seed: int = 0) -> ir.Value:
    """Return an initializer of drawn bytes, read as elements of a type."""
    count = int(np.prod(dims)) * dtype.bitwidth // 8
    data = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    tensor: ir.TensorProtocol
    if dtype.bitwidth < 8:
        tensor = ir.PackedTensor(data, dtype, shape=ir.Shape(dims), name=name)
    else:
        tensor = ir.Tensor(data.reshape(dims), name=name)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(dims), const_value=tensor)


def reader(*weights: ir.Value) -> ir.Model:
    nodes = [ir.node("Cast", [value], {"to": 1}) for value in weights]
    outputs = [node.outputs[0] for node in nodes]
    for place, output in enumerate(outputs):
        output.name, output.type = f"y{place}", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [], outputs, nodes=nodes, initializers=weights, opset_imports={"": 21}, name="g"
    )
    return ir.Model(graph, ir_version=10)


_BYTES, _FOUR = ir.DataType.UINT8, ir.DataType.UINT4


@each(
    ("a", "b", "refused"),
    [
        pytest.param(
            [codes("w", _BYTES, 6, 4, 16)], [codes("w4", _FOUR, 6, 128)], None, id="other type"
        ),
        pytest.param(
            [codes("w", _BYTES, 6, 4, 16)], [codes("v", _BYTES, 6, 64)], None, id="other shape"
        ),
        pytest.param(
            [codes("w", _BYTES, 6, 4, 16)],
            [codes("w4", _FOUR, 6, 128, seed=1)],
            "weight `w` of A is not in B",
            id="other bytes",
        ),
        pytest.param(
            [codes("w", _BYTES, 6, 4, 16)],
            [codes("w", _FOUR, 6, 128, seed=1)],
            "weight `w` differs between A and B",
            id="other bytes under one name",
        ),
        pytest.param(
            [codes("w", _BYTES, 6, 64)],
            [codes("v", _BYTES, 6, 64)],
            "weight `w` of A is not in B",
            id="another name alone",
        ),
        pytest.param(
            [codes("w", _BYTES, 6, 64), codes("u", _BYTES, 6, 64)],
            [codes("w4", _FOUR, 6, 128), codes("u4", _FOUR, 6, 128)],
            "weight `w` of A is not in B",
            id="two that hold the same",
        ),
    ],
)
def test_weights_are_told_by_what_they_hold(
    a: list[ir.Value], b: list[ir.Value], refused: str | None
) -> None:
    found = with_counterparts(skeleton(reader(*a), "A"), skeleton(reader(*b), "B"))
    if refused is None:
        check_weights(*found)
        assert found[0].bare == found[1].bare == {"w"}
        assert found[1].message.graph.node[0].input[0] == "w"
    else:
        with pytest.raises(CannotShrink) as refusal:
            check_weights(*found)
        assert refusal.value.message == refused
