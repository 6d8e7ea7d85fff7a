"""What is read is written again: nothing is lost, and nothing is added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import AttributeProto, TensorProto, TypeProto, helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import clone, origin, read, serialize
from onnx_kvtool.model_io.verbatim import LongList, SparseInitializer, VerbatimType
from tests.core.small import FLOAT, INT64, branched, external, plain, save, weighted, with_function
from tests.grids import each

Make = Callable[[], onnx.ModelProto]
ROOT = Path(__file__).parents[2]


def _with(change: Callable[[onnx.ModelProto], object], make: Make = plain) -> Make:
    def made() -> onnx.ModelProto:
        message = make()
        change(message)
        return message

    return made


def _sparse(graph: onnx.GraphProto, name: str) -> None:
    sparse = graph.sparse_initializer.add(dims=[3, 5])
    sparse.values.CopyFrom(helper.make_tensor(name, FLOAT, [2], [7.0, 11.0]))
    sparse.values.doc_string = "thin"
    sparse.indices.CopyFrom(helper.make_tensor("", INT64, [2], [4, 13]))


def _sparse_everywhere(message: onnx.ModelProto) -> None:
    _sparse(message.graph, "s")
    _sparse(message.graph.node[-1].attribute[1].g, "s2")
    message.graph.node[1].input.append("s")


def _attribute(**fields: object) -> Make:
    return _with(lambda m: m.graph.node[1].attribute.add(name="k", **fields))


def _typed(type_: TypeProto) -> Make:
    """A graph output, an inner value and an attribute of this type."""

    def change(message: onnx.ModelProto) -> None:
        message.graph.output[0].type.CopyFrom(type_)
        message.graph.value_info.add(name="a").type.CopyFrom(type_)
        message.graph.node[0].attribute.add(name="k", type=AttributeProto.TYPE_PROTO, tp=type_)
        message.graph.node[0].attribute.add(
            name="ks", type=AttributeProto.TYPE_PROTOS, type_protos=[type_, type_]
        )

    return _with(change)


def _metadata_everywhere(message: onnx.ModelProto) -> None:
    branch = message.graph.node[-1].attribute[0].g
    for holder in (
        message,
        message.graph,
        message.graph.node[0],
        message.graph.input[0],
        message.graph.output[0],
        message.graph.initializer[0],
        branch,
        branch.node[0],
        branch.output[0],
        branch.initializer[0],
    ):
        for key in ("first", "second"):
            holder.metadata_props.add(key=key, value=f"{key} of it")
    message.graph.node[1].attribute.append(
        helper.make_attribute("k", helper.make_tensor("t", FLOAT, [1], [3.0]))
    )
    message.graph.node[1].attribute[0].t.metadata_props.add(key="first", value="of a tensor")


def _texts_everywhere(message: onnx.ModelProto) -> None:
    message.producer_name, message.producer_version = "maker", "7"
    message.domain, message.model_version, message.doc_string = "org.example", -5, "a model"
    for holder in (
        message.graph,
        message.graph.node[0],
        message.graph.input[0],
        message.graph.output[0],
        message.graph.initializer[0],
        message.graph.node[-1].attribute[0],
        message.graph.node[-1].attribute[0].g,
    ):
        holder.doc_string = f"about a {type(holder).__name__}"


def _denotations(message: onnx.ModelProto) -> None:
    type_ = message.graph.input[0].type
    type_.denotation = "IMAGE"
    type_.tensor_type.shape.dim[0].denotation = "DATA_BATCH"


def _devices(message: onnx.ModelProto) -> None:
    message.configuration.add(name="two", num_devices=2, device=["a", "b"])
    used = message.graph.node[0].device_configurations.add(configuration_id="two")
    used.pipeline_stage = 0
    spec = used.sharding_spec.add(tensor_name="x", device=[0, 1])
    spec.index_to_device_group_map.add(key=0, value=[0, 1])
    spec.sharded_dim.add(axis=0).simple_sharding.add(num_shards=2, dim_param="N")


def _annotated(message: onnx.ModelProto) -> None:
    for name in ("x", "w", "a", "y"):  # an input, an initializer, an inner value, an output
        annotation = message.graph.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=f"{name}_scale")
        annotation.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value=f"{name}_zero")


def _function_with_body(message: onnx.ModelProto) -> None:
    body = branched().graph.node[-1].attribute[0].g
    body.node[0].input[0] = "u"
    node = helper.make_node("If", ["u"], ["o"], "inside", then_branch=body, else_branch=body)
    node.attribute.add(name="axis", type=AttributeProto.INT, ref_attr_name="q")
    message.functions[0].node.append(node)


def _training(message: onnx.ModelProto) -> None:
    step = message.training_info.add()
    step.algorithm.CopyFrom(plain().graph)
    step.update_binding.add(key="w", value="y")


def _old_function(message: onnx.ModelProto) -> None:
    """A function of IR version 9, described the way PyTorch's exporter did it."""
    message.ir_version = 9
    function = message.functions[0]
    function.ClearField("overload")
    function.ClearField("value_info")
    message.graph.node[-1].ClearField("overload")
    message.graph.value_info.append(helper.make_tensor_value_info("my::twice/t", FLOAT, [2, "N"]))


_SPARSE_TENSOR = onnx.SparseTensorProto(
    values=helper.make_tensor("", FLOAT, [1], [7.0]),
    indices=helper.make_tensor("", INT64, [1], [4]),
    dims=[5],
)
_TENSOR_TYPE = helper.make_tensor_type_proto(FLOAT, [3, "N"])
_MAP = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))
_OPAQUE = TypeProto(denotation="THING")
_OPAQUE.MergeFromString(b"\x3a\x07\x0a\x01d\x12\x02op")  # opaque_type {domain: "d" name: "op"}

CASES: dict[str, Make] = {
    "a plain model": plain,
    "a model with branches": branched,
    "a model with a function": with_function,
    "a body in a function, and a reference to its attribute": _with(
        _function_with_body, with_function
    ),
    "a function of IR version 9 described in the main graph": _with(_old_function, with_function),
    "an empty graph name": _with(lambda m: m.graph.ClearField("name")),
    "unnamed nodes": _with(lambda m: m.graph.node[0].ClearField("name")),
    "sparse initializers of all graphs": _with(_sparse_everywhere, branched),
    "a sparse attribute": _attribute(
        type=AttributeProto.SPARSE_TENSOR, sparse_tensor=_SPARSE_TENSOR, doc_string="thin"
    ),
    "a list of sparse attributes": _attribute(
        type=AttributeProto.SPARSE_TENSORS, sparse_tensors=[_SPARSE_TENSOR, _SPARSE_TENSOR]
    ),
    "a string that is not UTF-8": _attribute(type=AttributeProto.STRING, s=b"\xff\x00"),
    "strings that are not UTF-8": _attribute(type=AttributeProto.STRINGS, strings=[b"\xff", b"a"]),
    "strings": _attribute(type=AttributeProto.STRINGS, strings=["größer".encode(), b"", b"a"]),
    "tensors in a list": _attribute(
        type=AttributeProto.TENSORS, tensors=[helper.make_tensor("t", FLOAT, [1], [3.0])] * 2
    ),
    "numbers": _attribute(type=AttributeProto.FLOATS, floats=[1e-45, float("inf"), -0.0]),
    "many integers": _attribute(
        type=AttributeProto.INTS, ints=range(-5, 140_000), doc_string="long"
    ),
    "many floats": _attribute(type=AttributeProto.FLOATS, floats=[1e-45, -0.0] * 140_000),
    "graphs in a list": _attribute(
        type=AttributeProto.GRAPHS, graphs=[branched().graph.node[-1].attribute[0].g]
    ),
    "training information": _with(_training),
    "quantization annotations": _with(_annotated),
    "metadata on all levels": _with(_metadata_everywhere, branched),
    "texts on all levels": _with(_texts_everywhere, branched),
    "denotations": _with(_denotations),
    "device configurations": _with(_devices),
    "device configurations of too old an IR version": _with(
        lambda m: (_devices(m), setattr(m, "ir_version", 8))
    ),
    "a last output without a name": _with(lambda m: m.graph.node[0].output.append("")),
    "outputs without a name": _with(
        lambda m: m.graph.node[0].output.extend(["", "b", "", ""]),
    ),
    "a last input without a name": _with(lambda m: m.graph.node[0].input.append("")),
    "a string initializer": _with(
        lambda m: m.graph.initializer.append(
            helper.make_tensor("t", TensorProto.STRING, [2], [b"\xff", b""])
        )
    ),
    "an initializer that is an input": _with(
        lambda m: m.graph.input.append(helper.make_tensor_value_info("w", FLOAT, ["N", 5]))
    ),
    "an initializer that is described": _with(
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, [3, 5]))
    ),
    "an initializer that is described by symbols": _with(
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, ["N", 5]))
    ),
    "an external tensor with all its entries": lambda: weighted(
        external(
            "w", [3, 5], location="d/w.bin", offset=64, length=60, checksum="ab12", basepath="old"
        )
    ),
    "an external tensor with nothing but a location": lambda: weighted(
        external("w", [3, 5], location="w.bin")
    ),
    "an external tensor in an attribute": _attribute(
        type=AttributeProto.TENSOR, t=external("", [3], location="w.bin", checksum="ab12")
    ),
    "an optional sequence": _typed(
        helper.make_optional_type_proto(helper.make_sequence_type_proto(_TENSOR_TYPE))
    ),
    "a sparse type": _typed(helper.make_sparse_tensor_type_proto(FLOAT, [3, "N"])),
    "a map": _typed(_MAP),
    "a sequence of maps": _typed(helper.make_sequence_type_proto(_MAP)),
    "an opaque type": _typed(_OPAQUE),
    "a sequence of nothing": _typed(helper.make_sequence_type_proto(TypeProto())),
    "an optional of a tensor of no type": _typed(
        helper.make_optional_type_proto(TypeProto(tensor_type=TypeProto.Tensor()))
    ),
    "a denotation and no type": _typed(TypeProto(denotation="IMAGE")),
    "a tensor of an undefined type": _typed(helper.make_tensor_type_proto(0, [3])),
    "a value with a shape and no type": _with(
        lambda m: m.graph.output[0].type.tensor_type.ClearField("elem_type")
    ),
}


@pytest.mark.long
@each("make", CASES)
def test_nothing_is_lost(make: Make, tmp_path: Path) -> None:
    message = make()
    model = read(save(message, tmp_path / "m.onnx"))
    written = serialize(model)
    assert _ordered(onnx.ModelProto.FromString(written)) == _ordered(message)
    assert serialize(model) == written


@pytest.mark.long
@each("make", CASES)
def test_nothing_is_lost_by_a_copy(make: Make, tmp_path: Path) -> None:
    model = read(save(make(), tmp_path / "m.onnx"))
    copy = clone(model)
    assert serialize(copy) == serialize(model)
    assert origin(copy) is origin(model)


REAL = sorted((ROOT / "fixtures" / "models").rglob("*.onnx"))


@pytest.mark.long
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_nothing_is_lost_of_a_real_model(path: Path) -> None:
    message = onnx.load(path, load_external_data=False)
    written = onnx.ModelProto.FromString(serialize(read(path)))
    assert _ordered(written) == _ordered(message)


def _ordered(message: onnx.ModelProto) -> onnx.ModelProto:
    """Bring what means the same into one form: lists by name, texts that are stated and empty."""
    _order(message)
    return message


def _order(message: onnx.ModelProto) -> None:
    for field, value in message.ListFields():
        if field.name in ("value_info", "metadata_props", "quantization_annotation"):
            entries = {entry.SerializeToString(deterministic=True): entry for entry in value}
            copies = [type(entries[key]).FromString(key) for key in sorted(entries)]
            del value[:]
            value.extend(copies)
        elif field.type == field.TYPE_STRING and not value:
            message.ClearField(field.name)
        if field.type == field.TYPE_MESSAGE:
            for inner in value if hasattr(value, "append") else [value]:
                _order(inner)


def test_domains_have_one_spelling(tmp_path: Path) -> None:
    message = with_function()
    message.opset_import[0].domain = "ai.onnx"
    message.functions[0].opset_import[0].domain = "ai.onnx"
    message.graph.node[0].domain = "ai.onnx"
    model = read(save(message, tmp_path / "m.onnx"))
    assert model.opset_imports == {"": 21, "my": 1}
    assert [function.opset_imports for function in model.functions.values()] == [{"": 21}]
    assert [node.domain for node in model.graph] == ["", "", "my"]


def test_what_has_no_form_is_not_taken_for_something_else(tmp_path: Path) -> None:
    message = CASES["sparse initializers of all graphs"]()
    message.graph.output[0].type.CopyFrom(_MAP)
    model = read(save(message, tmp_path / "m.onnx"))
    value = model.graph.initializers["s"]
    assert isinstance(value.const_value, SparseInitializer)
    assert (value.dtype, list(value.shape)) == (ir.DataType.FLOAT, [3, 5])
    assert (value.const_value.size, value.const_value.nbytes) == (15, 8)
    with pytest.raises(KvtoolError, match="sparse initializer `s` cannot be read"):
        value.const_value.numpy()
    output = model.graph.outputs[0]
    assert isinstance(output.type, VerbatimType)
    assert output.dtype is ir.DataType.UNDEFINED


@pytest.mark.long
def test_a_long_list_of_numbers_is_a_tuple_for_readers_and_not_kept_as_one(tmp_path: Path) -> None:
    model = read(save(CASES["many integers"](), tmp_path / "m.onnx"))
    attribute = model.graph.node(1).attributes["k"]
    assert isinstance(attribute, LongList)
    assert attribute.as_ints() == attribute.value == tuple(range(-5, 140_000))
    assert attribute.value is not attribute.value
    few = read(save(CASES["numbers"](), tmp_path / "m.onnx"))
    assert not isinstance(few.graph.node(1).attributes["k"], LongList)


def test_a_renamed_sparse_initializer_is_written_under_its_name(tmp_path: Path) -> None:
    model = read(save(CASES["sparse initializers of all graphs"](), tmp_path / "m.onnx"))
    model.graph.initializers["s"].name = "thin"
    written = onnx.ModelProto.FromString(serialize(model))
    assert [sparse.values.name for sparse in written.graph.sparse_initializer] == ["thin"]
    assert written.graph.node[1].input[-1] == "thin"


def test_writing_does_not_change_the_model_it_shares_tensors_with(tmp_path: Path) -> None:
    model = read(save(plain(), tmp_path / "m.onnx"))
    copy = clone(model)
    copy.graph.initializers["w"].name = "renamed"
    serialize(copy)
    written = onnx.ModelProto.FromString(serialize(model))
    assert [tensor.name for tensor in written.graph.initializer] == ["w"]


def test_a_copy_of_a_model_with_a_dangling_input_is_refused(tmp_path: Path) -> None:
    message = plain()
    message.graph.node[1].input.append("gone")
    model = read(save(message, tmp_path / "m.onnx"))
    with pytest.raises(KvtoolError, match=r"cannot be copied: .*reads `gone`, which nothing"):
        clone(model)


def test_a_model_made_in_memory_has_no_origin() -> None:
    model = ir.from_proto(plain())
    assert (origin(model).path, origin(model).directory, origin(model).defects) == ("", "", ())
    assert serialize(model) == plain().SerializeToString(deterministic=True)
