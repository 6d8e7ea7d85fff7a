"""What is wrong with a message is said before onnx_ir repairs or drops it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.model_io.container import judge
from onnx_kvtool.model_io.model import origin, read
from tests.core.small import FLOAT, branched, external, plain, save, weighted, with_function
from tests.grids import each

Change = Callable[[onnx.ModelProto], object]


def _tensor(**fields: object) -> TensorProto:
    return TensorProto(name="t", **fields)


def _add(message: onnx.ModelProto, tensor: TensorProto) -> None:
    message.graph.initializer.append(tensor)


def _branch(message: onnx.ModelProto) -> onnx.GraphProto:
    return message.graph.node[-1].attribute[0].g


def _call_back(message: onnx.ModelProto) -> None:
    """Let `my::twice:long` call `my::other`, and that call it back from within an If."""
    message.functions[0].node.append(helper.make_node("other", ["t"], ["o"], domain="my"))
    other = message.functions.add(domain="my", name="other", input=["u"], output=["v"])
    body = helper.make_graph(
        [helper.make_node("twice", ["u"], ["b"], domain="my", overload="long")],
        "body",
        [],
        [helper.make_tensor_value_info("b", FLOAT, None)],
    )
    other.node.append(helper.make_node("If", ["u"], ["v"], then_branch=body, else_branch=body))


def _opset_imports(*pairs: tuple[str, int]) -> Change:
    def change(message: onnx.ModelProto) -> None:
        del message.opset_import[:]
        for domain, version in pairs:
            message.opset_import.add(domain=domain, version=version)

    return change


# The model, what is changed in it, and the diagnostics as `severity code: location`.
CASES: dict[str, tuple[Callable[[], onnx.ModelProto], Change, list[str]]] = {
    "a sound model": (plain, lambda m: None, []),
    "a sound model with branches": (branched, lambda m: None, []),
    "a sound model with a function": (with_function, lambda m: None, []),
    "an initializer that is an input, too": (
        plain,
        lambda m: _add(m, helper.make_tensor("x", FLOAT, [2, 3], range(6))),
        [],
    ),
    "an omitted optional input": (plain, lambda m: m.graph.node[0].input.append(""), []),
    "a value info for what is not there": (
        plain,
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("q", FLOAT, [7])),
        [],
    ),
    "no IR version": (
        plain,
        lambda m: m.ClearField("ir_version"),
        ["error missing-ir-version: model"],
    ),
    "two versions of one domain": (
        plain,
        _opset_imports(("", 21), ("", 18)),
        ["error duplicate-opset-import: model"],
    ),
    "two versions of one domain in both spellings": (
        plain,
        _opset_imports(("", 21), ("ai.onnx", 18)),
        ["error duplicate-opset-import: model"],
    ),
    "one version stated twice": (plain, _opset_imports(("", 21), ("", 21)), []),
    "no version of the default domain": (
        plain,
        _opset_imports(("my", 1)),
        ["error missing-opset-import: model"],
    ),
    "two versions of one domain in a function": (
        with_function,
        lambda m: m.functions[0].opset_import.add(domain="", version=18),
        ["error duplicate-opset-import: my::twice:long"],
    ),
    "two initializers of one name": (
        plain,
        lambda m: _add(m, m.graph.initializer[0]),
        ["error duplicate-initializer: main, value `w`"],
    ),
    "a dense and a sparse initializer of one name": (
        plain,
        lambda m: m.graph.sparse_initializer.add(values=_named("w")),
        ["error duplicate-initializer: main, value `w`"],
    ),
    "an initializer without a name": (
        plain,
        lambda m: _add(m, TensorProto(data_type=FLOAT, float_data=[1.0])),
        ["error unnamed-initializer: main, value ``"],
    ),
    "two inputs of one name": (
        plain,
        lambda m: m.graph.input.append(m.graph.input[0]),
        ["error duplicate-input: main, value `x`"],
    ),
    "an input without a name": (
        plain,
        lambda m: m.graph.input.append(helper.make_tensor_value_info("", FLOAT, [])),
        ["error unnamed-input: main, value ``"],
    ),
    "an input that nothing produces": (
        plain,
        lambda m: m.graph.node[1].input.append("gone"),
        ["error undefined-input: main, node `second` (Neg), value `gone`"],
    ),
    "an input that nothing produces, in a branch": (
        branched,
        lambda m: _branch(m).node[1].input.append("gone"),
        ["error undefined-input: main/choice.then_branch, node `#1` (Add), value `gone`"],
    ),
    "an input that is in the other branch": (
        branched,
        lambda m: _branch(m).node[1].input.append("no_w"),
        ["error undefined-input: main/choice.then_branch, node `#1` (Add), value `no_w`"],
    ),
    "an input that nothing produces, in a function": (
        with_function,
        lambda m: m.functions[0].node[0].input.append("x"),
        ["error undefined-input: my::twice:long, node `inner` (Abs), value `x`"],
    ),
    "nodes in the wrong order": (
        plain,
        lambda m: m.graph.node.append(m.graph.node.pop(0)),
        ["error unsorted-nodes: main, node `second` (Neg), value `a`"],
    ),
    "a node that reads its own output": (
        plain,
        lambda m: m.graph.node[0].input.append("a"),
        ["error unsorted-nodes: main, node `first` (Relu), value `a`"],
    ),
    "a branch that reads what a later node outside produces": (
        branched,
        lambda m: m.graph.node.insert(0, m.graph.node.pop(2)),
        [
            "error unsorted-nodes: main/choice.then_branch, node `yes_op` (Abs), value `a`",
            "error unsorted-nodes: main/choice.else_branch, node `no_op` (Sqrt), value `a`",
        ],
    ),
    "an output that nothing produces": (
        plain,
        lambda m: m.graph.output.append(helper.make_tensor_value_info("gone", FLOAT, [])),
        ["error undefined-output: main, value `gone`"],
    ),
    "a branch that returns a value from outside": (
        branched,
        lambda m: _branch(m).output.append(helper.make_tensor_value_info("a", FLOAT, None)),
        ["error undefined-output: main/choice.then_branch, value `a`"],
    ),
    "a branch that hides a value of the graph around it": (
        branched,
        lambda m: _branch(m).node.append(helper.make_node("Abs", ["a"], ["y"], "hides")),
        ["warning shadowed-value: main/choice.then_branch, node `hides` (Abs), value `y`"],
    ),
    "a last output without a name": (
        plain,
        lambda m: m.graph.node[0].output.append(""),
        ["info trailing-empty-output: main, node `first` (Relu)"],
    ),
    "a node without an operator": (
        plain,
        lambda m: m.graph.node[0].ClearField("op_type"),
        ["error missing-op-type: main, node `first`"],
    ),
    "two attributes of one name": (
        plain,
        lambda m: m.graph.node[1].attribute.extend([helper.make_attribute("k", 2)] * 2),
        ["error duplicate-attribute: main, node `second` (Neg)"],
    ),
    "two functions of one name": (
        with_function,
        lambda m: m.functions.append(m.functions[0]),
        ["error duplicate-function: my::twice:long"],
    ),
    "a function with two inputs of one name": (
        with_function,
        lambda m: m.functions[0].input.append("u"),
        ["error duplicate-parameter: my::twice:long"],
    ),
    "a function with two attributes of one name": (
        with_function,
        lambda m: m.functions[0].attribute.append("q"),
        ["error duplicate-parameter: my::twice:long"],
    ),
    "a function that calls itself": (
        with_function,
        lambda m: m.functions[0].node.append(
            helper.make_node("twice", ["t"], ["s"], domain="my", overload="long")
        ),
        ["error recursive-function: my::twice:long"],
    ),
    "a function that calls another overload": (
        with_function,
        lambda m: m.functions[0].node.append(helper.make_node("twice", ["t"], ["s"], domain="my")),
        [],
    ),
    "functions that call each other": (
        with_function,
        _call_back,
        ["error recursive-function: my::twice:long"],
    ),
    "a value declared twice, differently": (
        plain,
        lambda m: m.graph.value_info.extend(
            helper.make_tensor_value_info("a", FLOAT, [size]) for size in (3, 5)
        ),
        ["warning duplicate-value-info: main, value `a`"],
    ),
    "a value declared twice, equally": (
        plain,
        lambda m: m.graph.value_info.extend([helper.make_tensor_value_info("a", FLOAT, [3])] * 2),
        [],
    ),
    "metadata with one key twice": (
        plain,
        lambda m: [m.graph.metadata_props.add(key="k", value=v) for v in "ab"],
        ["warning duplicate-metadata: main"],
    ),
    "a quantization annotation for nothing": (
        plain,
        lambda m: m.graph.quantization_annotation.add(tensor_name="gone"),
        ["error lost-quantization-annotation: main, value `gone`"],
    ),
    "a field of a newer onnx in a node": (
        plain,
        lambda m: m.graph.node[0].MergeFromString(b"\xa0\x06\x07"),
        ["error unknown-field: main, node `first` (Relu)"],
    ),
    "a field of a newer onnx in the model": (
        plain,
        lambda m: m.MergeFromString(b"\xa0\x06\x07"),
        ["error unknown-field: model"],
    ),
    "a negative dim": (
        plain,
        lambda m: _add(m, _tensor(dims=[2, -3], data_type=FLOAT)),
        ["error bad-dims: main, value `t`"],
    ),
    "more elements than can be counted": (
        plain,
        lambda m: _add(m, _tensor(dims=[2**40, 2**40], data_type=FLOAT)),
        ["error bad-dims: main, value `t`"],
    ),
    "more bytes than can be counted": (
        weighted,
        lambda m: _add(m, external("t", [2**61], location="w.bin")),
        ["error bad-dims: main, value `t`"],
    ),
    "absurd dims beside a zero": (
        plain,
        lambda m: _add(m, _tensor(dims=[2**62, 0, 2**62], data_type=FLOAT)),
        [],
    ),
    "a negative dim of a sparse initializer": (
        plain,
        lambda m: m.graph.sparse_initializer.add(values=_named("s"), dims=[-2]),
        ["error bad-dims: main, value `s`"],
    ),
    "raw data that is too short": (
        plain,
        lambda m: _add(m, _tensor(dims=[3], data_type=FLOAT, raw_data=bytes(11))),
        ["error tensor-data-length: main, value `t`"],
    ),
    "raw data of packed elements": (
        plain,
        lambda m: _add(m, _tensor(dims=[3], data_type=TensorProto.UINT4, raw_data=bytes(2))),
        [],
    ),
    "raw data of packed elements that is too long": (
        plain,
        lambda m: _add(m, _tensor(dims=[3], data_type=TensorProto.UINT4, raw_data=bytes(3))),
        ["error tensor-data-length: main, value `t`"],
    ),
    "raw data of strings": (
        plain,
        lambda m: _add(m, _tensor(dims=[1], data_type=TensorProto.STRING, raw_data=b"a")),
        ["error tensor-data-length: main, value `t`"],
    ),
    "typed data that is too short": (
        plain,
        lambda m: _add(m, _tensor(dims=[3], data_type=FLOAT, float_data=[1.0, 2.0])),
        ["error tensor-data-length: main, value `t`"],
    ),
    "typed data of complex numbers": (
        plain,
        lambda m: _add(m, _tensor(dims=[2], data_type=TensorProto.COMPLEX64, float_data=[1.0] * 4)),
        [],
    ),
    "no data at all": (
        plain,
        lambda m: _add(m, _tensor(dims=[3], data_type=FLOAT)),
        ["error tensor-data-length: main, value `t`"],
    ),
    "data of a tensor in an attribute that is too short": (
        plain,
        lambda m: m.graph.node[1].attribute.append(
            helper.make_attribute("v", _tensor(dims=[3], data_type=FLOAT, raw_data=bytes(8)))
        ),
        ["error tensor-data-length: main, node `second` (Neg)"],
    ),
}


def _named(name: str) -> TensorProto:
    return TensorProto(name=name, data_type=FLOAT)


@pytest.mark.long
@each(("make", "change", "expected"), CASES)
def test_defects(
    make: Callable[[], onnx.ModelProto], change: Change, expected: list[str], tmp_path: Path
) -> None:
    message = make()
    change(message)
    before = message.SerializeToString(deterministic=True)
    defects = judge(message).defects
    assert [f"{d.severity} {d.code}: {d.location}" for d in defects] == expected
    assert message.SerializeToString(deterministic=True) == before
    # A defect is told, and does not keep the model from being looked at.
    assert origin(read(save(message, tmp_path / "m.onnx"))).defects == tuple(defects)


def _attribute(**fields: object) -> Change:
    return lambda m: m.graph.node[0].attribute.add(name="k", **fields)


def _forget_output(message: onnx.ModelProto) -> None:
    message.functions[0].output.append("gone")


def _external(**entries: str) -> Change:
    return lambda m: _add(m, external("e", [4], **entries))


def _doubled_offset(message: onnx.ModelProto) -> None:
    _add(message, external("e", [4], location="w.bin", offset=0))
    message.graph.initializer[-1].external_data.add(key="offset", value="16")


# What onnx_ir refuses with a message about itself, or reads in its own way.
REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], Change, str]] = {
    "a value produced twice": (
        plain,
        lambda m: m.graph.node[1].output.append("a"),
        "main, node `second` (Neg) produces `a`, which the graph has already",
    ),
    "a node that produces an input": (
        plain,
        lambda m: m.graph.node[1].output.append("x"),
        "main, node `second` (Neg) produces `x`, which the graph has already",
    ),
    "a node that produces an initializer": (
        plain,
        lambda m: m.graph.node[1].output.append("w"),
        "main, node `second` (Neg) produces `w`, which the graph has already",
    ),
    "a function output that nothing produces": (
        with_function,
        _forget_output,
        "my::twice:long: nothing produces the output `gone` of the function",
    ),
    "an initializer of an unknown type": (
        plain,
        lambda m: _add(m, _tensor(data_type=99)),
        "main, value `t`: element type 99 is unknown to onnx",
    ),
    "an input of an unknown type": (
        plain,
        lambda m: m.graph.input.append(helper.make_tensor_value_info("t", 99, [])),
        "main, value `t`: element type 99 is unknown to onnx",
    ),
    "a sequence of an unknown type": (
        plain,
        lambda m: m.graph.value_info.append(helper.make_tensor_sequence_value_info("a", 99, [])),
        "main, value `a`: element type 99 is unknown to onnx",
    ),
    "an attribute without a type": (
        plain,
        _attribute(i=3),
        "main, node `first` (Relu): attribute `k` has no type that is known",
    ),
    "a tensor of an unknown type in an attribute": (
        plain,
        _attribute(type=AttributeProto.TENSOR, t=_tensor(data_type=99)),
        "main, node `first` (Relu): element type 99 is unknown to onnx",
    ),
    "a name that is not UTF-8": (
        plain,
        lambda m: m.graph.node[0].MergeFromString(b"\x12\x01\xff"),
        "the name b'\\xff' is not UTF-8",
    ),
    **{
        f"the external offset {text!r}": (
            plain,
            _external(location="w.bin", offset=text),
            f"main, value `e`: the offset of its external data is {text[:40]!r}, not a decimal",
        )
        for text in ("-1", "+1", "1_0", " 1", "0x10", "1e3", "", "٣", "9" * 5000)
    },
    "a negative external length": (
        plain,
        _external(location="w.bin", length="-16"),
        "main, value `e`: the length of its external data is '-16', not a decimal",
    ),
    "two external offsets": (
        plain,
        _doubled_offset,
        "main, value `e`: external data has two entries `offset`",
    ),
}


@pytest.mark.parametrize(("make", "change", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals(
    make: Callable[[], onnx.ModelProto], change: Change, words: str, tmp_path: Path
) -> None:
    message = make()
    change(message)
    path = save(message, tmp_path / "m.onnx")
    with pytest.raises(UnreadableModel) as caught:
        read(path)
    assert caught.value.message.startswith(f"`{path}`: ")
    assert words in caught.value.message


def test_a_cycle_of_calls_is_told_in_order() -> None:
    message = with_function()
    _call_back(message)
    (defect,) = judge(message).defects
    assert defect.message == "calls itself: `my::twice:long` -> `my::other` -> `my::twice:long`"


def test_onnx_ir_stays_quiet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    message = plain()
    message.graph.node[1].input.append("gone")
    with caplog.at_level("DEBUG"):
        read(save(message, tmp_path / "m.onnx"))
    assert not caplog.records
