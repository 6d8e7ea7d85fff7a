"""TensorScatter inside If, Loop and Scan bodies and in model-local functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import model, tensor_scatter_node, tensor_scatter_oracle, value
from tests.faults.hostile import HOSTILE
from tests.grids import part

_T = onnx.TensorProto
_F, _I = _T.FLOAT, _T.INT64
_CACHE: list[Any] = ["B", 3, 7, 5]
_UPDATE: list[Any] = ["B", 3, "L", 5]
_BRANCH = helper.make_node("Identity", ["past_cache"], ["kept"])


def _inputs(*more: onnx.ValueInfoProto) -> list[onnx.ValueInfoProto]:
    return [
        value("past_cache", _F, _CACHE),
        value("update", _F, _UPDATE),
        value("write_indices", _I, ["B"]),
        *more,
    ]


def _output() -> list[onnx.ValueInfoProto]:
    return [value("present_cache", _F, _CACHE)]


def _in_if() -> onnx.ModelProto:
    """Both branches capture the cache; each writes it in its own mode."""
    branches = {}
    for name, mode in (("then_branch", "linear"), ("else_branch", "circular")):
        node = tensor_scatter_node(present=f"{name}_present", mode=mode)
        out = [value(f"{name}_present", _F, _CACHE)]
        branches[name] = helper.make_graph([node], name, [], out)
    choose = helper.make_node("If", ["linear"], ["present_cache"], name="choose", **branches)
    return model([choose], _inputs(value("linear", _T.BOOL, [])), _output())


def _in_if_and_outside() -> onnx.ModelProto:
    """The same write outside and in a branch: the outer index can be used again inside."""
    inner = tensor_scatter_node(present="inner_present")
    branch = helper.make_graph([inner], "then", [], [value("inner_present", _F, _CACHE)])
    other = helper.make_graph([_BRANCH], "else", [], [value("kept", _F, _CACHE)])
    outer = tensor_scatter_node(present="outer_present")
    choose = helper.make_node(
        "If", ["linear"], ["present_cache"], name="choose", then_branch=branch, else_branch=other
    )
    outputs = [*_output(), value("outer_present", _F, _CACHE)]
    return model([outer, choose], _inputs(value("linear", _T.BOOL, [])), outputs)


def _in_branch_only_then_outside() -> onnx.ModelProto:
    """A write in a branch before the same one outside: the inner index cannot be used outside."""
    source = _in_if_and_outside()
    outer, choose = source.graph.node
    del source.graph.node[:]
    source.graph.node.extend([choose, outer])
    return source


def _in_loop() -> onnx.ModelProto:
    """Three iterations carry the cache; the start moves on by one each time."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["write_indices", "iteration"], ["start"]),
            tensor_scatter_node("carried", "update", "start", "written"),
            helper.make_node("Identity", ["condition"], ["go_on"]),
        ],
        "body",
        [
            value("iteration", _I, []),
            value("condition", _T.BOOL, []),
            value("carried", _F, _CACHE),
        ],
        [value("go_on", _T.BOOL, []), value("written", _F, _CACHE)],
    )
    loop = helper.make_node("Loop", ["trips", "", "past_cache"], ["present_cache"], body=body)
    trips = numpy_helper.from_array(np.array(3, np.int64), "trips")
    return model([loop], _inputs(), _output(), initializers=[trips])


def _in_scan() -> onnx.ModelProto:
    """One update per scanned row of starts."""
    body = helper.make_graph(
        [tensor_scatter_node("carried", "update", "start", "written")],
        "body",
        [value("carried", _F, _CACHE), value("start", _I, ["B"])],
        [value("written", _F, _CACHE)],
    )
    scan = helper.make_node(
        "Scan", ["past_cache", "starts"], ["present_cache"], body=body, num_scan_inputs=1
    )
    inputs = [*_inputs(), value("starts", _I, [3, "B"])]
    return model([scan], inputs, _output())


def _function(name: str, body: list[onnx.NodeProto], **keywords: Any) -> onnx.FunctionProto:
    return helper.make_function(
        "local",
        name,
        ["past", "new", "start"],
        ["present"],
        body,
        opset_imports=[helper.make_opsetid("", 24), helper.make_opsetid("local", 1)],
        **keywords,
    )


def _call(name: str, present: str = "present_cache", **attributes: Any) -> onnx.NodeProto:
    inputs = ["past_cache", "update", "write_indices"]
    return helper.make_node(name, inputs, [present], domain="local", name=present, **attributes)


def _in_function() -> onnx.ModelProto:
    write = _function("Write", [tensor_scatter_node("past", "new", "start", "present")])
    return model([_call("Write")], _inputs(), _output(), functions=[write])


def _in_nested_function_with_attributes() -> onnx.ModelProto:
    """The axis is a parameter of the inner function, the mode a default of it."""
    node = tensor_scatter_node("past", "new", "start", "present")
    for name, kind in (("axis", onnx.AttributeProto.INT), ("mode", onnx.AttributeProto.STRING)):
        reference = node.attribute.add()
        reference.name, reference.ref_attr_name, reference.type = name, name, kind
    inner = _function(
        "Inner",
        [node],
        attributes=["axis"],
        attribute_protos=[helper.make_attribute("mode", "circular")],
    )
    call = helper.make_node("Inner", ["past", "new", "start"], ["present"], domain="local", axis=2)
    outer = _function("Outer", [call])
    return model([_call("Outer")], _inputs(), _output(), functions=[inner, outer])


def _in_function_called_twice() -> onnx.ModelProto:
    write = _function("Write", [tensor_scatter_node("past", "new", "start", "present")])
    calls = [_call("Write"), _call("Write", "second")]
    outputs = [*_output(), value("second", _F, _CACHE)]
    return model(calls, _inputs(), outputs, functions=[write])


def _in_function_with_branch() -> onnx.ModelProto:
    """A body inside a function captures the inputs of the function."""
    then = tensor_scatter_node("past", "new", "start", "then_present")
    keep = helper.make_node("Identity", ["past"], ["kept"])
    choose = helper.make_node(
        "If",
        ["yes"],
        ["present"],
        then_branch=helper.make_graph([then], "then", [], [value("then_present", _F, None)]),
        else_branch=helper.make_graph([keep], "else", [], [value("kept", _F, None)]),
    )
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    write = _function("Write", [yes, choose])
    return model([_call("Write")], _inputs(), _output(), functions=[write])


_CASES: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, Any]]] = {
    "both branches of If, the first taken": (_in_if, {"linear": np.array(True)}),
    "both branches of If, the second taken": (_in_if, {"linear": np.array(False)}),
    "outside and in a branch, taken": (_in_if_and_outside, {"linear": np.array(True)}),
    "outside and in a branch, not taken": (_in_if_and_outside, {"linear": np.array(False)}),
    "in a branch, then outside, taken": (_in_branch_only_then_outside, {"linear": np.array(True)}),
    "in a branch, then outside, not taken": (
        _in_branch_only_then_outside,
        {"linear": np.array(False)},
    ),
    "the body of Loop": (_in_loop, {}),
    "the body of Scan": (_in_scan, {"starts": np.array([[0, 1], [2, 3], [4, 0]], np.int64)}),
    "a function": (_in_function, {}),
    "a nested function with attribute parameters": (_in_nested_function_with_attributes, {}),
    "a function called twice": (_in_function_called_twice, {}),
    "a branch in a function": (_in_function_with_branch, {}),
}


def _feeds(more: dict[str, Any]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "past_cache": rng.standard_normal((2, 3, 7, 5)).astype(np.float32),
        "update": rng.standard_normal((2, 3, 2, 5)).astype(np.float32),
        "write_indices": np.array([2, 0], np.int64),
        **more,
    }


@part(4)
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
@pytest.mark.parametrize("opset", [11, 13, 18, 23, None], ids=lambda o: f"opset {o or 'kept'}")
@pytest.mark.parametrize(("build", "more"), list(_CASES.values()), ids=list(_CASES))
def test_scope(
    build: Callable[[], onnx.ModelProto], more: dict[str, Any], opset: int | None, via: str
) -> None:
    """The lowered model gives the bits of the source, which runs natively."""
    source = build()
    onnx.checker.check_model(source)
    options: dict[str, Any] = {"opset": opset} if opset else {"only": ["TensorScatter"]}
    result, report = lower(ir.from_proto(source), verify=False, via=via, **options)
    assert not report.refused
    assert not any(n.op_type == "TensorScatter" for _, _, n in nodes(result))
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    feeds = _feeds(more)
    expected = Session(source.SerializeToString(), "").run(feeds)
    actual = Session(serialize(result), "").run(feeds)
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].tobytes() == array.tobytes(), name


@pytest.mark.needs_onnxruntime("1.29")
def test_the_native_runtime_agrees_with_the_text() -> None:
    """What the cases above are compared with."""
    feeds = _feeds({})
    native = Session(_in_function().SerializeToString(), "").run(feeds)["present_cache"]
    expected = tensor_scatter_oracle(*feeds.values(), axis=2, mode="linear")
    assert native.tobytes() == expected.tobytes()


def test_the_index_of_the_outer_graph_serves_the_branch() -> None:
    result, _ = lower(ir.from_proto(_in_if_and_outside()), verify=False)
    outer = next(n for n in result.graph if n.op_type == "ScatterND")
    choose = next(n for n in result.graph if n.op_type == "If")
    (inner,) = choose.attributes["then_branch"].as_graph()
    assert inner.op_type == "ScatterND"
    assert inner.inputs[1] is outer.inputs[1]


def test_functions_that_the_target_can_keep_are_kept() -> None:
    """Only what must be rewritten is inlined; an unused function stays too."""
    source = _in_function()
    twice = helper.make_node("Add", ["past", "past"], ["present"])
    source.functions.append(_function("Twice", [twice]))
    result, report = lower(ir.from_proto(source), verify=False, opset=18)
    assert [key[1] for key in result.functions] == ["Twice"]
    assert next(iter(result.functions.values())).opset_imports[""] == 18
    assert [done.rule for done in report.lowered] == ["inline", "tensor_scatter"]
    result, report = lower(ir.from_proto(source), verify=False, opset=13)
    assert not result.functions  # IR version 7 has none
    assert any("`local::Twice`, which nothing calls, is removed" in n for n in report.notes)


@pytest.mark.long
def test_calls_are_inlined_however_deep_they_lie() -> None:
    """More deeply than Python's stack, which has a thousand levels."""
    text = (
        '<ir_version: 10, opset_import: ["": 24, "my": 1]>'
        "g (float[N] x) => (float[N] y) { y = my.f1100 (x) }"
        '<domain: "my", opset_import: ["": 24]> f0 (a) => (b) { b = Swish (a) }'
    ) + "".join(
        f'<domain: "my", opset_import: ["": 24, "my": 1]> f{k} (a) => (b){{ b = my.f{k - 1} (a) }}'
        for k in range(1, 1101)
    )
    lowered, report = lower(onnx.parser.parse_model(text), opset=18, verify=False)
    assert [done.rule for done in report.lowered] == ["inline", "function_body"]
    assert not lowered.functions
    assert {node.domain for node in lowered.graph} == {""}


def test_functions_that_call_each_other_twice_are_not_written_out() -> None:
    """Opset 9 has no functions. In place of its calls, 33 nodes would be 65,536."""
    with pytest.raises(Refused) as refused:
        lower(HOSTILE["functions that expand to 2^16 calls"](), opset=9, verify=False)
    (found,) = refused.value.report.refused
    assert (found.code, "expand to 131071 nodes" in found.message) == ("too-many-calls", True)
