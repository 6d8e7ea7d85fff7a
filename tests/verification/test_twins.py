"""The float32 twin of a model: what becomes wide and what stays."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_kvtool.model_io.model import read
from onnx_kvtool.runtime.errors import NoTwin
from onnx_kvtool.runtime.sessions import RUNTIMES, open_session
from onnx_kvtool.verification.subject import capture
from onnx_kvtool.verification.twins import roundable, twin
from tests.grids import each
from tests.runtime.recorded import serialized

EVERYTHING = """
<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float16[N, 3] x, float8e4m3fn[3] small, bool up) => (float16[N, 3] y, float16[N, 3] z)
<float16[3] w = {15360, 16384, 14336}, uint8[3] q = {1, 2, 3}>
{
  c = Constant <value = float16[1] {16896}> ()
  a = Add (x, c)
  wide = Cast <to = 10> (small)
  b = Mul (a, wide)
  scale = Constant <value = float16 {14336}> ()
  quantised = DequantizeLinear (q, scale)
  d = If (up) <
    then_branch = t () => (float16[M, 3] one) <float16[3] v = {15360, 15360, 15360}>
      { one = Mul (b, v) },
    else_branch = e () => (float16[M, 3] other)
      { other = LayerNormalization <stash_type = 10> (b, w) }
  >
  y = Add (d, quantised)
  shape = Shape (x)
  filled = ConstantOfShape <value = float16[1] {15360}> (shape)
  z = local.narrowed <kind = 10> (filled)
}
<domain: "local", opset_import: ["": 21]>
narrowed <kind> (x) => (y) { r = Cast <to: int = @kind> (x) y = Neg (r) }
"""


def everything() -> bytes:
    return serialized(EVERYTHING)


def element_types(message: onnx.ModelProto) -> set[int]:
    graph = message.graph
    values = [*graph.input, *graph.output, *graph.value_info]
    return {value.type.tensor_type.elem_type for value in values}


@each("runtime", RUNTIMES)
@each("up", [True, False])
def test_everything_narrow_becomes_wide(runtime: str, up: bool) -> None:
    data = everything()
    made, casts = twin(data)
    message = onnx.ModelProto.FromString(made)
    assert onnx.TensorProto.FLOAT16 not in element_types(message)
    assert "float16" not in onnx.printer.to_text(message)
    assert casts == 0
    x = np.arange(6).reshape(2, 3)
    inputs = {
        "x": x.astype(np.float32),
        "small": np.array([1, 2, 4]).astype(ml_dtypes.float8_e4m3fn),
        "up": np.array(up),
    }
    found = open_session(runtime, made, "").run(inputs)  # type: ignore[arg-type]
    product = (x + 3.0) * [1, 2, 4]
    if not up:
        centred = product - product.mean(axis=1, keepdims=True)
        product = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * [1, 2, 0.5]
    np.testing.assert_allclose(
        found["y"] - product, np.tile([0.5, 1, 1.5], (2, 1)), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(found["z"], -np.ones((2, 3)))
    assert {value.dtype.name for value in found.values()} == {"float32"}


def test_the_model_itself_stays() -> None:
    data = everything()
    twin(data)
    assert data == everything()


def test_types_of_sequences_and_optionals_become_wide() -> None:
    data = serialized("""
    <ir_version: 10, opset_import: ["": 21]>
    g (float16[N] x, int64 i) => (float16[N] y)
    { none = SequenceEmpty <dtype = 10> () s = SequenceInsert (none, x) y = SequenceAt (s, i) }
    """)
    message = onnx.ModelProto.FromString(data)
    sequence = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT16, ["N"])
    message.graph.value_info.append(sequence)
    made = onnx.ModelProto.FromString(twin(message.SerializeToString())[0])
    inside = made.graph.value_info[0].type.sequence_type.elem_type.tensor_type
    assert inside.elem_type == onnx.TensorProto.FLOAT
    inputs = {"x": np.ones(3, np.float32), "i": np.array(0)}
    found = open_session("reference", made.SerializeToString(), "").run(inputs)
    assert found["y"].dtype == np.float32


def weights(path: Path, *, external: bool) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(7, 9000)).astype(ml_dtypes.bfloat16)
    tensor = helper.make_tensor(
        "w", onnx.TensorProto.BFLOAT16, values.shape, values.tobytes(), raw=True
    )
    one = [helper.make_tensor_value_info("x", onnx.TensorProto.BFLOAT16, ["N", 7])]
    other = [helper.make_tensor_value_info("y", onnx.TensorProto.BFLOAT16, ["N", 9000])]
    nodes = [
        helper.make_node("Identity", ["w"], ["w.narrow"]),
        helper.make_node("MatMul", ["x", "w.narrow"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", one, other, [tensor])
    message = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(message, path, save_as_external_data=external, location="data", size_threshold=0)
    return values.astype(np.float32)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("external", [True, False])
def test_large_weights_are_widened_by_a_cast(tmp_path: Path, external: bool, runtime: str) -> None:
    values = weights(tmp_path / "m.onnx", external=external)
    subject = capture(read(tmp_path / "m.onnx"), "A")
    made = subject.twin()
    assert made.casts == 1
    # The weights are not in the message once more, or not twice as large.
    assert len(made.model) < len(subject.model) + 1000
    x = np.random.default_rng(1).normal(size=(2, 7)).astype(np.float32)
    found = made.session(runtime).run({"x": x})  # type: ignore[arg-type]
    np.testing.assert_allclose(found["y"], x @ values, rtol=1e-4, atol=1e-4)


def test_a_model_that_reads_bits_has_no_twin() -> None:
    data = serialized("""
    <ir_version: 11, opset_import: ["": 26]>
    g (float16[N] x) => (int16[N] y) { y = BitCast <to = 5> (x) }
    """)
    with pytest.raises(NoTwin, match="BitCast reads the bits of a type"):
        twin(data)


HELD = """
<ir_version: 10, opset_import: ["": 21]>
g (float16[N] x) => (float16[N] y) <float16 w = {W}> { y = Mul (x, w) }
"""


@each(
    ("value", "is_rounded"),
    [(0.1, True), (1.5, True), (3.0, False), (0.125, False), (0.0, False), (float("-inf"), False)],
)
def test_integers_and_powers_of_two_were_not_rounded(value: float, is_rounded: bool) -> None:
    bits = int(np.array(value, np.float16).view(np.uint16))
    data = serialized(HELD.replace("{W}", f"{{{bits}}}"))
    names = roundable(data)
    assert bool(names) == is_rounded
    x = np.ones(1, np.float32)
    run = [
        float(open_session("onnxruntime", twin(data, shaken)[0], "").run({"x": x})["y"][0])
        for shaken in ((), names)
    ]
    assert run[0] == np.float16(value)
    if is_rounded:
        assert 0 < abs(run[1] / run[0] - 1) < 2**-11
    else:
        assert run[1] == run[0]
