"""What a comparison changes in its copies of quantized products is said, with what it hides."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.onnxruntime import Session

K, N, BLOCK = 64, 48, 32


def product(level: int) -> onnx.ModelProto:
    """Return one MatMulNBits of 4 bits at an `accuracy_level`."""
    rng = np.random.default_rng(0)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], name="product", domain="com.microsoft",
        K=K, N=N, bits=4, block_size=BLOCK, accuracy_level=level,
    )  # fmt: skip
    packed = rng.integers(0, 255, (N, K // BLOCK, BLOCK // 2), np.uint8, endpoint=True)
    scales = rng.uniform(0.05, 0.1, N * K // BLOCK).astype(np.float32)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", N])],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def note(detail: str | None) -> str:
    found = re.search(r"products with quantized weights .*", detail or "")
    return "" if found is None else found[0]


@pytest.mark.long
def test_a_lowered_level_is_said_with_what_the_models_differ_by_as_they_are() -> None:
    source = product(4)
    lowered, report = kv.lower(source, opset=21, contrib="standard")
    said = note(report.verification.detail)
    assert said.startswith(
        "products with quantized weights were computed in float32: `accuracy_level` of 1 node of "
        "the source is 1 in place of 4; the unchanged models differ by up to "
    )
    told = float(re.findall(r"up to (\S+) in `y`", said)[0])
    assert report.verification.status == "equal"
    assert report.verification.max_abs_diff < 1e-5 < 1e-3 < told
    # A caller who runs both sees as much.
    x = np.random.default_rng(3).standard_normal((5, K)).astype(np.float32)
    ours, theirs = (
        Session(data, "", exact=False).run({"x": x})["y"]
        for data in (source.SerializeToString(), serialize(lowered))
    )
    assert told / 4 < np.abs(ours - theirs).max() < told * 4


@pytest.mark.parametrize("level", [0, 1])
def test_nothing_is_said_where_nothing_was_changed(level: int) -> None:
    _, report = kv.lower(product(level), opset=21, contrib="standard")
    assert (report.verification.status, note(report.verification.detail)) == ("equal", "")


def test_models_that_round_alike_differ_by_no_more() -> None:
    report = kv.verify(product(4), product(4))
    assert report.status == "equal"
    (said,) = filter(None, map(note, report.notes))
    assert said.endswith("the unchanged models differ by no more")
