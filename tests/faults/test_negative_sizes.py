"""What has a negative size ends no process, and costs no knowledge of what has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.guard.crashes import slices_negative_size
from onnx_kvtool.guard.weightless import infer_with_data
from tests.faults.kvtool_process import Fault, Runner
from tests.grids import part

pytestmark = pytest.mark.long


def _sliced(
    node: onnx.NodeProto,
    shape: list[int],
    axis: int,
    opset: int = 18,
    **constants: Sequence[object],
) -> onnx.ModelProto:
    """Return a model that computes `n` of an input of this shape, and slices `n` along an axis."""
    tensors = {}
    for name, numbers in constants.items():
        array = np.array(numbers)
        tensors[name] = array if array.dtype == np.int64 else array.astype(np.float32)
    bounds = {"starts": [0], "ends": [5], "axes": [axis]}
    tensors |= {name: np.array(numbers) for name, numbers in bounds.items()}
    graph = helper.make_graph(
        [node, helper.make_node("Slice", ["n", "starts", "ends", "axes"], ["y"])],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _searching() -> onnx.ModelProto:
    """Return a GreedySearch whose decoder slices what a Pad leaves of 3 ids: -2 of them."""
    tensors = {"pads": [0, -5], "starts": [0], "ends": [2]}
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["ids"], ["x"], to=TensorProto.FLOAT),
            helper.make_node("Pad", ["x", "pads"], ["n"]),
            helper.make_node("Slice", ["n", "starts", "ends"], ["logits"]),
        ],
        "decoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT32, [3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(t), name) for name, t in tensors.items()],
    )
    node = helper.make_node(
        "GreedySearch", ["ids", "length"], ["y"], domain="com.microsoft",
        decoder=body, eos_token_id=1, pad_token_id=0, model_type=0,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "main",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT32, [1, 3]),
            helper.make_tensor_value_info("length", TensorProto.INT32, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["B", "S"])],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


_node = helper.make_node
MODELS = {
    "a pad": _sliced(_node("Pad", ["x", "p"], ["n"]), [2, 3], 0, p=[-5, 0, 0, 0]),
    "a scale": _sliced(_node("Resize", ["x", "", "s"], ["n"]), [2, 3], 0, s=[-5.0, 4.0]),
    "a length of DFT": _sliced(_node("DFT", ["x", "k"], ["n"], axis=1), [2, 3, 1], 1, 17, k=[-5]),
    "a count of TopK": _sliced(_node("TopK", ["x", "k"], ["n", "i"]), [2, 3], 1, k=[-5]),
    "a split": _sliced(_node("Split", ["x", "k"], ["n", "i"], axis=0), [2, 3], 0, k=[-5, 7]),
    "repeats": _sliced(_node("Tile", ["x", "k"], ["n"]), [2, 3], 0, k=[-5, 4]),
    "pads of a window": _sliced(
        _node("MaxPool", ["x"], ["n"], kernel_shape=[1], pads=[-5, -5]), [2, 3, 4], 2
    ),
    "a window that is larger than its input": _sliced(
        _node("AveragePool", ["x"], ["n"], kernel_shape=[9]), [2, 3, 4], 2
    ),
    "a height": _sliced(
        _node("RoiAlign", ["x", "r", "b"], ["n"], output_height=-5, output_width=1),
        [2, 8, 3, 5],
        2,
        r=[[0.0] * 4] * 2,
        b=[0, 0],
    ),
    "a size of AffineGrid": _sliced(
        _node("AffineGrid", ["x", "k"], ["n"]), [2, 2, 3], 1, 20, k=[2, 3, -5, -6]
    ),
    "a body of an operator of onnxruntime": _searching(),
}


@part(10)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("check", "m.onnx", "--isolated"), id="check"),
        pytest.param(("infer", "m.onnx"), id="infer"),
        pytest.param(("inspect", "m.onnx", "--nodes"), id="inspect"),
        pytest.param(("lower", "m.onnx", "--opset", "13", "--dry-run"), id="lower"),
        pytest.param(("verify", "m.onnx", "m.onnx", "--cases", "1"), id="verify"),
    ],
)
def test_a_negative_size_that_is_sliced_ends_no_process(
    runner: Runner, tmp_path: Path, model: onnx.ModelProto, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    outcome = runner.run(arguments, tmp_path, Fault(seconds=20))
    assert outcome.code in (0, 1, 3), outcome.stderr


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        pytest.param(
            _sliced(_node("MaxPool", ["x"], ["n"], kernel_shape=[2]), [2, 3, 9], 2),
            [2, 3, 5],
            id="a window that fits",
        ),
        pytest.param(
            _sliced(_node("Pad", ["x", "p"], ["n"]), [7, 3], 0, p=[-1, 0, 0, 0]),
            [5, 3],
            id="a pad that leaves something",
        ),
    ],
)
def test_what_is_sliced_behind_a_sound_size_is_known(
    model: onnx.ModelProto, shape: list[int]
) -> None:
    before = model.SerializeToString()
    inferred = infer_with_data(model)
    (output,) = inferred.graph.output
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == shape
    assert [node.domain for node in inferred.graph.node] == ["", ""]
    assert list(inferred.opset_import) == list(model.opset_import)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_onnxruntime_is_asked_to_load_none_of_them(model: onnx.ModelProto) -> None:
    assert slices_negative_size(model) is not None
