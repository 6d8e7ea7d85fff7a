"""What an older IR version cannot hold: stripped, or refused where it would lose something."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.rewrite.report import Refused
from tests.cache_models import model, one_update, value


def _source() -> ir.Model:
    result: ir.Model = ir.from_proto(one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2))
    return result


def test_metadata_is_stripped_below_10_on_every_level() -> None:
    source = _source()
    node = next(iter(source.graph))
    for holder in (source, source.graph, source.graph.inputs[0], node, node.outputs[0]):
        holder.metadata_props["key"] = "value"
    result, report = lower(source, opset=18, verify=False)
    assert result.metadata_props == {"key": "value"}
    assert not result.graph.metadata_props
    assert not any(v.metadata_props for v in (*result.graph.inputs, *result.graph.outputs))
    assert not any(n.metadata_props for n in result.graph)
    assert "metadata of graphs, nodes and values removed" in " ".join(report.notes)


def test_device_configurations_are_stripped_below_11() -> None:
    source = _source()
    source.ir_version = 11
    source.add_device_configuration("pair", num_devices=2)
    kept, report = lower(source, opset=23, verify=False)
    assert [c.name for c in kept.device_configurations] == ["pair"]
    assert not any("device" in note for note in report.notes)
    stripped, report = lower(source, opset=22, verify=False)
    assert not stripped.device_configurations
    assert "device configurations removed: IR version 10 has none" in report.notes


_LACKING = {
    "an input that goes straight to a custom operator": T.FLOAT8E4M3FN,
    "4-bit integers": T.INT4,
}


@pytest.mark.parametrize("dtype", list(_LACKING.values()), ids=list(_LACKING))
def test_a_type_that_the_ir_version_lacks_is_refused_in_the_interface(dtype: int) -> None:
    """No operator of ONNX touches it, so that only the IR version forbids it."""
    node = helper.make_node("Custom", ["x"], ["y"], domain="me", name="custom")
    inputs, outputs = [value("x", dtype, [3])], [value("y", T.FLOAT, [3])]
    source = model([node], inputs, outputs, opset=21, ir_version=10)
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(source), opset=18, verify=False)
    assert [(r.code, r.location.value) for r in refused.value.report.refused] == [
        ("ir-version", "x")
    ]


def test_a_constant_of_such_a_type_is_refused() -> None:
    weight = numpy_helper.from_array(np.zeros(3, ml_dtypes.float8_e5m2), "w")
    node = helper.make_node("Custom", ["w"], ["y"], domain="me", name="custom")
    source = model(
        [node], [], [value("y", T.FLOAT, [3])], opset=21, ir_version=10, initializers=[weight]
    )
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(source), opset=18, verify=False)
    assert [r.code for r in refused.value.report.refused] == ["ir-version"]
    result, _ = lower(ir.from_proto(source), opset=19, verify=False)
    onnx.checker.check_model(ir.to_proto(result))


@pytest.mark.parametrize(("opset", "declared"), [(7, 3), (8, 3), (9, 3), (9, 4)])
def test_a_constant_beside_the_inputs_raises_an_ir_version_without_such(
    opset: int, declared: int
) -> None:
    node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    ends = [value(name, T.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=declared)
    result, report = lower(ir.from_proto(proto), opset=17, contrib="standard")
    assert (result.ir_version, result.opset_imports[""]) == (4, opset)
    assert [n.op_type for n in result.graph] == ["Mul", "Sigmoid", "Mul"]
    assert ("IR version 4 instead of 3" in " ".join(report.notes)) == (declared == 3)
