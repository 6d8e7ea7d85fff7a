"""What would end the process inside onnx's shape inference is not in the message for it."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from onnx_kvtool.guard.weightless import weightless
from onnx_kvtool.model_io.model import deserialize

_SLICE = (
    "s = Constant<value_ints = [1]>()  e = Constant<value_ints = [4]>()  y = Slice(x, s, e)"
    "  z = Identity(y)"
)


def _model() -> onnx.ModelProto:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    return onnx.parser.parse_model(f"{header} g (float[7, 5] x) => (z) {{ {_SLICE} }}")


def _negative_input() -> onnx.ModelProto:
    model = _model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -7
    return model


def _negative_inner_value() -> onnx.ModelProto:
    model = _model()
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, None))
    model.graph.node.insert(0, helper.make_node("Abs", ["w"], ["x"]))
    model.graph.value_info.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [-7, 5]))
    return model


def _negative_initializer() -> onnx.ModelProto:
    model = _model()
    del model.graph.input[:]
    model.graph.initializer.append(
        TensorProto(name="x", data_type=TensorProto.FLOAT, dims=[-7, 5], raw_data=bytes(140))
    )
    return model


def _negative_constant() -> onnx.ModelProto:
    model = _negative_initializer()
    node = helper.make_node("Constant", [], ["x"], value=model.graph.initializer[0])
    del model.graph.initializer[:]
    model.graph.node.insert(0, node)
    return model


def _negative_sparse_initializer() -> onnx.ModelProto:
    model = _negative_initializer()
    sparse = model.graph.sparse_initializer.add(dims=[-7, 5])
    sparse.values.CopyFrom(helper.make_tensor("x", TensorProto.FLOAT, [1], [2.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [3]))
    del model.graph.initializer[:]
    return model


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(_negative_input(), id="of an input"),
        pytest.param(_negative_inner_value(), id="of an inner value"),
        pytest.param(_negative_initializer(), id="of an initializer"),
        pytest.param(_negative_constant(), id="of a constant"),
        pytest.param(_negative_sparse_initializer(), id="of a sparse initializer"),
    ],
)
def test_a_negative_size_is_left_out(model: onnx.ModelProto) -> None:
    message = weightless(deserialize(model.SerializeToString()))
    graph = message.graph
    types = [value.type.tensor_type for value in (*graph.input, *graph.value_info)]
    assert all(dim.dim_value >= 0 for type_ in types for dim in type_.shape.dim)
    assert all(dim >= 0 for tensor in graph.initializer for dim in tensor.dims)
    onnx.shape_inference.infer_shapes(message, data_prop=True)  # lives


@pytest.mark.parametrize("size", [(1 << 20) + 1, 1 << 40])
def test_the_size_of_a_vast_vector_is_left_out(size: int) -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    text = f"{header} g (int64[{size}] x, float[{size}, 5] m) => (y) {{ y = Add(x, x) }}"
    message = weightless(deserialize(onnx.parser.parse_model(text).SerializeToString()))
    vector, matrix = (value.type.tensor_type.shape.dim for value in message.graph.input)
    assert not vector[0].HasField("dim_value")
    assert matrix[0].dim_value == size
    onnx.shape_inference.infer_shapes(message, data_prop=True)  # ends soon
