"""onnx's services get the model without its weights, and answer as for the model."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import AttributeProto, TensorProto, helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.guard.weightless import weightless
from onnx_kvtool.model_io.model import deserialize, read
from tests.core.small import BOOL, FLOAT, INT64, branched, external, plain, save, with_function
from tests.grids import each, part

ROOT = Path(__file__).parents[2]


def _read(message: onnx.ModelProto, tmp_path: Path) -> ir.Model:
    return read(save(message, tmp_path / "m.onnx"))


def _dense(name: str, dims: list[int]) -> TensorProto:
    count = 1
    for dim in dims:
        count *= dim
    return helper.make_tensor(name, FLOAT, dims, bytes(4 * count), raw=True)


def _product(weight: Callable[[str, list[int]], TensorProto]) -> onnx.ModelProto:
    """`x (2, 300) @ w (300, 7) -> a`, `a + b -> y (2, 7)`, with an unread int64 list."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
            helper.make_node("Add", ["a", "b"], ["y"], "sum"),
        ],
        "main",
        [helper.make_tensor_value_info("x", FLOAT, [2, 300])],
        [helper.make_tensor_value_info("y", FLOAT, [2, "M"])],
        [weight("w", [300, 7]), _dense("b", [7]), helper.make_tensor("k", INT64, [2], [3, 5])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=11)


def _gone(name: str, dims: list[int]) -> TensorProto:
    """An external tensor whose file is not there."""
    return external(name, dims, location=f"{name}.gone.bin", offset=0)


def _answers(message: onnx.ModelProto) -> dict[str, tuple[int, list[int | str]]]:
    """Check the message, and return type and shape of each value."""
    onnx.checker.check_model(message, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(
        message, check_type=True, strict_mode=True, data_prop=True
    )
    return {
        info.name: (
            info.type.tensor_type.elem_type,
            [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim],
        )
        for info in [*inferred.graph.value_info, *inferred.graph.output]
    }


def _inputs(message: onnx.ModelProto) -> list[str]:
    return [info.name for info in message.graph.input]


@pytest.mark.parametrize("weight", [_dense, _gone], ids=["inline", "external and missing"])
def test_weights_become_inputs(
    tmp_path: Path, weight: Callable[[str, list[int]], TensorProto]
) -> None:
    message = weightless(_read(_product(weight), tmp_path))
    assert _inputs(message) == ["x", "w"]
    assert [tensor.name for tensor in message.graph.initializer] == ["b", "k"]
    assert _answers(message) == {"a": (FLOAT, [2, 7]), "y": (FLOAT, [2, 7])}
    assert message.ByteSize() < 1000


def test_the_limit_is_one_kibibyte(tmp_path: Path) -> None:
    message = plain()
    for name, size in (("small", 256), ("large", 257)):
        message.graph.initializer.append(_dense(name, [size]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x", "large"]
    assert [tensor.name for tensor in result.graph.initializer] == ["w", "small"]


def test_an_initializer_that_is_an_input_is_one_input(tmp_path: Path) -> None:
    message = _product(_dense)
    message.graph.input.insert(0, helper.make_tensor_value_info("w", FLOAT, ["K", 7]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["w", "x"]
    assert result.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "K"


def test_a_scalar_keeps_its_shape(tmp_path: Path) -> None:
    message = plain()
    message.graph.initializer.append(_gone("s", []))
    result = weightless(_read(message, tmp_path))
    assert result.graph.input[-1].type.tensor_type.HasField("shape")
    _answers(result)


def test_strings(tmp_path: Path) -> None:
    message = plain()
    for name, text in (("short", b"a"), ("long", b"a" * 2000)):
        message.graph.initializer.append(helper.make_tensor(name, TensorProto.STRING, [1], [text]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x", "long"]
    _answers(result)


def test_a_sparse_initializer_counts_as_the_dense_tensor_that_runtimes_make_of_it(
    tmp_path: Path,
) -> None:
    message = _product(_dense)
    del message.graph.initializer[0]
    sparse = message.graph.sparse_initializer.add(dims=[300, 7])
    sparse.values.CopyFrom(helper.make_tensor("w", FLOAT, [1], [3.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", INT64, [1], [4]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x", "w"]
    assert _answers(result)["a"] == (FLOAT, [2, 7])


def _constant(tensor: TensorProto, output: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [output], value=tensor)


@pytest.mark.parametrize("weight", [_dense, _gone], ids=["inline", "external and missing"])
def test_constant_nodes_become_inputs(
    tmp_path: Path, weight: Callable[[str, list[int]], TensorProto]
) -> None:
    message = _product(_dense)
    del message.graph.initializer[0]
    message.graph.node.insert(0, _constant(weight("", [300, 7]), "w"))
    message.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, [300, 7]))
    message.graph.output.append(helper.make_tensor_value_info("w", FLOAT, [300, 7]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x", "w"]
    assert [node.op_type for node in result.graph.node] == ["MatMul", "Add"]
    assert _answers(result)["a"] == (FLOAT, [2, 7])


def test_small_constants_stay(tmp_path: Path) -> None:
    message = plain()
    shape = helper.make_tensor("", INT64, [2], [1, -1])
    message.graph.node.insert(0, _constant(shape, "to"))
    message.graph.node.append(helper.make_node("Reshape", ["a", "to"], ["r"]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x"]
    assert _answers(result)["r"][1][0] == 1


def _branch(message: onnx.ModelProto) -> onnx.GraphProto:
    return message.graph.node[-1].attribute[0].g


def _branched() -> onnx.ModelProto:
    """`branched` with a shape for `z`, as the checker wants one of each output."""
    message = branched()
    message.graph.output[1].CopyFrom(helper.make_tensor_value_info("z", FLOAT, ["A", "B", "C"]))
    for attribute in message.graph.node[-1].attribute:
        attribute.g.initializer[0].CopyFrom(_dense(attribute.g.initializer[0].name, [3, 2, 1]))
    return message


def _weight_in_body(graph: onnx.GraphProto) -> None:
    graph.initializer[0].CopyFrom(_dense("yes_w", [300, 2, 1]))


def _external_in_body(graph: onnx.GraphProto) -> None:
    graph.initializer[0].CopyFrom(_gone("yes_w", [300, 2, 1]))


def _constant_in_body(graph: onnx.GraphProto) -> None:
    del graph.initializer[:]
    graph.node.insert(0, _constant(_gone("", [300, 2, 1]), "yes_w"))


@pytest.mark.parametrize("change", [_weight_in_body, _external_in_body, _constant_in_body])
def test_weights_of_bodies_become_unknown_values_of_their_type(
    tmp_path: Path, change: Callable[[onnx.GraphProto], None]
) -> None:
    message = _branched()
    change(_branch(message))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x", "c"]
    assert list(_branch(result).initializer) == []
    assert [node.op_type for node in _branch(result).node] == ["RandomUniform", "Abs", "Add"]
    assert _inferred_body(result) == {
        "yes_w": [300, 2, 1],
        "yes_in": [2, "N"],
        "yes_out": [300, 2, "N"],
    }


def _inferred_body(message: onnx.ModelProto) -> dict[str, list[int | str]]:
    _answers(message)
    graph = _branch(onnx.shape_inference.infer_shapes(message, strict_mode=True))
    return {
        info.name: [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in [*graph.value_info, *graph.output]
        if info.name.startswith("yes")
    }


def test_a_scalar_of_a_body_keeps_its_shape(tmp_path: Path) -> None:
    message = _branched()
    _branch(message).initializer[0].CopyFrom(_gone("yes_w", []))
    assert _inferred_body(weightless(_read(message, tmp_path)))["yes_w"] == []


def test_weights_of_bodies_of_another_type(tmp_path: Path) -> None:
    message = _branched()
    message.graph.input.append(helper.make_tensor_value_info("half.0", FLOAT, [1]))
    for name, dtype in (("half", TensorProto.FLOAT16), ("nibble", TensorProto.INT4)):
        tensor = external(name, [7, 5], dtype=dtype, location="gone.bin")
        _branch(message).initializer.append(tensor)
        _branch(message).node.append(helper.make_node("Shape", [name], [f"yes_{name}"]))
    result = weightless(_read(message, tmp_path))
    nodes = [(node.op_type, *node.output) for node in _branch(result).node][:4]
    assert nodes == [
        ("RandomUniform", "half.1"),  # as `half.0` is taken
        ("Cast", "half"),
        ("RandomUniform", "nibble.0"),
        ("Cast", "nibble"),
    ]
    assert _inferred_body(result)["yes_nibble"] == [2]


def _function_with(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    message = with_function()
    message.functions[0].node.extend(nodes)
    return message


def test_external_constants_of_functions_become_unknown_values_of_their_type(
    tmp_path: Path,
) -> None:
    message = _function_with(
        _constant(_gone("", [300, 1, 1]), "fw"), helper.make_node("Add", ["fw", "v"], ["o"])
    )
    message.functions[0].output[0] = "o"
    message.graph.output[1].CopyFrom(helper.make_tensor_value_info("z", FLOAT, ["A", "B", "C"]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x"]
    assert _answers(result)["z"][1][:2] == [300, 2]


def test_inline_constants_of_functions_stay(tmp_path: Path) -> None:
    message = _function_with(_constant(_dense("", [300]), "fw"))
    result = weightless(_read(message, tmp_path))
    assert result.functions[0].node[-1].attribute[0].t.dims == [300]
    _answers(result)


def test_weights_of_bodies_in_functions(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["bw"], ["bo"])],
        "body",
        [],
        [helper.make_tensor_value_info("bo", FLOAT, None)],
        [_gone("bw", [300])],
    )
    flag = helper.make_tensor("", BOOL, [], [True])
    message = _function_with(
        _constant(flag, "flag"),
        helper.make_node("If", ["flag"], ["o"], then_branch=body, else_branch=body),
    )
    message.functions[0].output[0] = "o"
    message.graph.output[1].CopyFrom(helper.make_tensor_value_info("z", FLOAT, ["A"]))
    result = weightless(_read(message, tmp_path))
    assert _inputs(result) == ["x"]
    assert _answers(result)["z"] == (FLOAT, [300])


@pytest.mark.parametrize(("size", "dims"), [(1, [1]), (2**20, [0])], ids=["small", "large"])
def test_external_tensors_of_other_attributes(tmp_path: Path, size: int, dims: list[int]) -> None:
    message = plain()
    node = message.graph.node.add(op_type="ConstantOfShape", input=["k"], output=["f"])
    node.attribute.add(name="value", type=AttributeProto.TENSOR, t=_gone("", [size]))
    message.graph.initializer.append(helper.make_tensor("k", INT64, [2], [3, 5]))
    result = weightless(_read(message, tmp_path))
    written = result.graph.node[-1].attribute[0].t
    assert (list(written.dims), len(written.external_data)) == (dims, 0)
    onnx.checker.check_model(result)
    if size == 1:
        assert _answers(result)["f"] == (FLOAT, [3, 5])


def test_types_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    message = plain()
    message.graph.value_info.add(name="a").type.optional_type.elem_type.sequence_type.SetInParent()
    assert weightless(_read(message, tmp_path)).graph.value_info[:] == []
    message.graph.value_info[0].type.CopyFrom(helper.make_tensor_type_proto(0, [2]))
    assert weightless(_read(message, tmp_path)).graph.value_info[:] == []
    message.graph.value_info[0].type.CopyFrom(helper.make_tensor_type_proto(FLOAT, [2, "N"]))
    assert len(weightless(_read(message, tmp_path)).graph.value_info) == 1


def test_what_no_service_reads_is_left_out(tmp_path: Path) -> None:
    message = plain()
    for holder in (message, message.graph, message.graph.node[0], message.graph.input[0]):
        holder.metadata_props.add(key="trace", value="long")
    message.graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="w"
    )
    message.training_info.add().algorithm.name = "step"
    result = weightless(_read(message, tmp_path))
    assert result == weightless(_read(plain(), tmp_path))


def test_the_model_is_not_changed(tmp_path: Path) -> None:
    message = _branched()
    _external_in_body(_branch(message))
    model = _read(message, tmp_path)
    first = weightless(model)
    assert weightless(model) == first
    assert model.graph.node("choice").attributes["then_branch"].as_graph().initializers


def test_a_value_without_a_name_is_refused() -> None:
    model = ir.from_proto(plain())
    model.graph[0].outputs[0].name = None
    with pytest.raises(KvtoolError, match="has no name"):
        weightless(model)


REAL = sorted((ROOT / "fixtures" / "models").rglob("*.onnx"))


@pytest.mark.long
@each("path", REAL)
def test_the_answers_are_those_for_the_model(path: Path) -> None:
    def inferred(message: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
        try:
            message = onnx.shape_inference.infer_shapes(message, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as error:
            return {"": str(error)}
        return {info.name: info.type for info in [*message.graph.value_info, *message.graph.output]}

    whole, result = onnx.load(path), weightless(read(path))
    expected = inferred(whole)
    answers = inferred(result)
    weights = {info.name for info in result.graph.input}
    for tensor in whole.graph.initializer:
        expected.pop(tensor.name, None)
    assert answers == {name: type_ for name, type_ in expected.items() if name not in weights}


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="measures with the units of Linux")
def test_weights_of_3_gb_are_neither_read_nor_copied(tmp_path: Path) -> None:
    count = 3 * 2**30 // 4
    message = plain()
    message.graph.initializer.append(external("big", [count], location="big.bin"))
    message.graph.node.append(helper.make_node("Mul", ["big", "big"], ["z"]))
    save(message, tmp_path / "m.onnx")
    with (tmp_path / "big.bin").open("wb") as file:
        file.truncate(4 * count)  # a hole, which takes no space
    code = textwrap.dedent(
        """
        import resource, sys
        from onnx_kvtool.model_io.external_data import check_external_data
        from onnx_kvtool.model_io.model import read, serialize
        from onnx_kvtool.guard.weightless import weightless
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        opened = []
        sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
        model = read(sys.argv[1])
        check_external_data(model, need_bytes=True)
        serialize(model)
        weightless(model)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(after - before, [path for path in opened if path.endswith(".bin")])
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.onnx"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    kibibytes, opened = done.stdout.split(" ", 1)
    assert int(kibibytes) < 50 * 1024
    assert opened.strip() == "[]"


_LARGE = 300_000
_A = AttributeProto


@pytest.mark.long
@part(2)
@pytest.mark.parametrize(
    ("op_type", "attribute", "made"),
    [
        ("Constant", _A(name="value_floats", type=_A.FLOATS, floats=[0.5] * _LARGE), FLOAT),
        ("Constant", _A(name="value_ints", type=_A.INTS, ints=[3] * _LARGE), INT64),
        ("Constant", _A(name="value_strings", type=_A.STRINGS, strings=[b"abcd"] * _LARGE), 8),
        ("Constant", _A(name="value_string", type=_A.STRING, s=b"abcd" * _LARGE), 8),
        ("Constant", _A(name="value", type=_A.TENSOR, t=_dense("", [_LARGE])), FLOAT),
        ("Odd", _A(name="context", type=_A.STRING, s=b"abcd" * _LARGE), None),
        ("Odd", _A(name="floats", type=_A.FLOATS, floats=[0.5] * _LARGE), None),
        ("Odd", _A(name="weight", type=_A.TENSOR, t=_dense("", [_LARGE])), None),
    ],
    ids=lambda given: f"{given.name}" if isinstance(given, _A) else None,
)
@pytest.mark.parametrize("is_inside", [False, True], ids=["in the graph", "in a function"])
def test_large_attributes_are_left_out(
    op_type: str, attribute: AttributeProto, made: int | None, is_inside: bool
) -> None:
    node = helper.make_node(op_type, [], ["c"], domain="" if made else "my")
    node.attribute.append(attribute)
    size = helper.make_node("Identity", ["c"], ["y"])
    dims = [] if attribute.name == "value_string" else [_LARGE]
    output = helper.make_tensor_value_info("y", made or FLOAT, dims)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    functions = [helper.make_function("my", "F", [], ["y"], [node, size], imports)]
    nodes = [helper.make_node("F", [], ["y"], domain="my")] if is_inside else [node, size]
    graph = helper.make_graph(nodes, "main", [], [output])
    model = helper.make_model(
        graph, opset_imports=imports, ir_version=10, functions=functions if is_inside else []
    )
    message = weightless(ir.from_proto(model))
    assert message.ByteSize() < 1000
    if made:
        assert _answers(message)["y"] == _answers(model)["y"]


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


@each(
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
