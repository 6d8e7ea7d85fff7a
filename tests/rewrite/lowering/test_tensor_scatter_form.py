"""What a lowered TensorScatter looks like, what it shares, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.rewrite.report import Refused
from tests.cache_models import model, one_update, tensor_scatter_node, value
from tests.grids import each, part

_T = onnx.TensorProto


def _bank(layers: int, batch: Any, length: Any, **attributes: Any) -> onnx.ModelProto:
    """Key and value cache of several layers, all written at the same place."""
    inputs = [value("write_indices", _T.INT64, [batch])]
    outputs, nodes = [], []
    for layer in range(layers):
        for kind in ("key", "value"):
            name = f"{kind}.{layer}"
            inputs.append(value(f"past.{name}", _T.FLOAT, [batch, 3, 7, 5]))
            inputs.append(value(f"new.{name}", _T.FLOAT, [batch, 3, length, 5]))
            outputs.append(value(f"present.{name}", _T.FLOAT, [batch, 3, 7, 5]))
            nodes.append(
                tensor_scatter_node(
                    f"past.{name}", f"new.{name}", present=f"present.{name}", **attributes
                )
            )
    return model(nodes, inputs, outputs)


def _lower(source: onnx.ModelProto, **options: Any) -> ir.Model:
    result, _ = lower(ir.from_proto(source), verify=False, **options)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    return result


@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize(("batch", "length"), [(2, 4), ("batch", "length")])
def test_all_layers_share_one_index(batch: Any, length: Any, mode: str, via: str) -> None:
    """Eight caches need no more index nodes than two."""
    small = _lower(_bank(1, batch, length, mode=mode), via=via)
    large = _lower(_bank(4, batch, length, mode=mode), via=via)
    scatter = {"scatternd": "ScatterND", "scatterelements": "ScatterElements"}[via]
    small_ops = Counter(n.op_type for n in small.graph)
    large_ops = Counter(n.op_type for n in large.graph)
    assert small_ops.pop(scatter) == 2
    assert large_ops.pop(scatter) == 8
    assert small_ops == large_ops
    assert len({n.inputs[1] for n in large.graph if n.op_type == scatter}) == 1
    assert len(small.graph.initializers) == len(large.graph.initializers)


@pytest.mark.parametrize(
    ("batch", "length", "mode", "nodes"),
    [
        (1, 1, "linear", ["Less", "Where"]),
        (1, 4, "linear", ["Less", "Where", "Add"]),
        (2, 1, "linear", ["Reshape", "Less", "Where", "Mul", "Add"]),
        (2, 4, "linear", ["Reshape", "Less", "Where", "Mul", "Add"]),
        (1, 1, "circular", ["Mod", "Less", "And", "Where"]),
        (1, 4, "circular", ["Mod", "Add", "Mod", "Less", "Where", "Mul", "Add"]),
        (2, 4, "circular", ["Reshape", "Mod", "Add", "Mod", "Less", "Where", "Mul", "Add"]),
    ],
)
def test_static_shapes_leave_few_index_nodes(
    batch: int, length: int, mode: str, nodes: list[str]
) -> None:
    result = _lower(_bank(1, batch, length, mode=mode))
    assert [n.op_type for n in result.graph if n.op_type != "ScatterND"] == nodes


def test_absent_write_indices_and_static_shapes_leave_a_constant_index() -> None:
    result = _lower(one_update([2, 3, 7, 5], [2, 3, 4, 5], write_indices=None))
    (scatter,) = result.graph
    assert scatter.op_type == "ScatterND"
    index = scatter.inputs[1]
    assert index is not None
    assert index.const_value is not None
    expected = np.stack(np.meshgrid(range(2), range(3), range(4), indexing="ij"), axis=-1)
    assert np.array_equal(index.const_value.numpy(), expected)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_constant_write_indices_and_static_shapes_leave_a_constant_index(mode: str) -> None:
    source = one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2, mode=mode)
    del source.graph.input[2]
    starts = np.array([3, 1], np.int64)
    source.graph.initializer.append(numpy_helper.from_array(starts, "write_indices"))
    (scatter,) = _lower(source).graph
    assert scatter.op_type == "ScatterND"


def test_an_overridable_write_indices_is_not_a_constant() -> None:
    """An initializer that is also a graph input can be replaced by the caller."""
    source = one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2)
    starts = np.array([3, 1], np.int64)
    source.graph.initializer.append(numpy_helper.from_array(starts, "write_indices"))
    assert [n.op_type for n in _lower(source).graph] == [
        "Reshape",
        "Less",
        "Where",
        "Mul",
        "Add",
        "ScatterND",
    ]


@part(4)
@pytest.mark.parametrize("opset", range(11, 24))
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_nothing_stands_between_cache_and_scatter(opset: int, via: str, mode: str) -> None:
    """A Reshape or Where there would copy the cache; TensorRT refuses `reduction`, even none."""
    source = _bank(1, "batch", "length", mode=mode)
    result = _lower(source, opset=opset, via=via)
    scatters = [n for n in result.graph if n.op_type.startswith("Scatter")]
    assert len(scatters) == 2
    for scatter in scatters:
        past, _, update = scatter.inputs
        assert past is not None and past.is_graph_input()
        assert update is not None and update.is_graph_input()
        assert scatter.outputs[0].is_graph_output()
        assert "reduction" not in scatter.attributes
        assert list(scatter.attributes) == (["axis"] if via == "scatterelements" else [])
    assert all(n.name for n in result.graph)
    assert result.opset_imports == {"": opset}


@pytest.mark.parametrize(
    ("shape", "axis", "length", "expected"),
    [
        ([2, 3, 7, 5], 2, 4, "ScatterND"),
        ([2, 3, 7, 3], 2, 4, "ScatterND"),
        ([2, 3, 7, 2], 2, 4, "ScatterElements"),
        ([2, 3, 7, 5], 3, 4, "ScatterElements"),
        ([2, 3, 7, 5], 3, 1, "ScatterND"),
        ([2, 7], 1, "L", "ScatterElements"),
        ([2, 3, 7, "D"], 2, 4, "ScatterND"),
    ],
    ids=[
        "rows of five elements, tuples of three numbers",
        "rows as long as their tuples",
        "rows shorter than their tuples",
        "rows of one element",
        "a single row of one element",
        "rows of one element, an unknown number of them",
        "rows of unknown length",
    ],
)
def test_auto_chooses_by_the_width_of_a_row(
    shape: list[Any], axis: int, length: Any, expected: str
) -> None:
    update = [length if i == axis else n for i, n in enumerate(shape)]
    result = _lower(one_update(shape, update, batch=2, axis=axis))
    assert [n.op_type for n in result.graph][-1] == expected


def test_int32_indices_select_scatter_elements() -> None:
    result = _lower(one_update(["B", 3, 7, 5], ["B", 3, "L", 5], batch="B"), index_dtype="int32")
    scatter = list(result.graph)[-1]
    assert scatter.op_type == "ScatterElements"
    assert scatter.inputs[1] is not None
    assert scatter.inputs[1].dtype == ir.DataType.INT32


def test_other_readers_of_the_cache_keep_it() -> None:
    source = one_update([2, 3, 7, 5], [2, 3, 4, 5], batch=2)
    source.graph.node.append(helper.make_node("Neg", ["past_cache"], ["negated"]))
    source.graph.output.append(value("negated", _T.FLOAT, [2, 3, 7, 5]))
    result = _lower(source)
    assert [v.name for v in result.graph.outputs] == ["present_cache", "negated"]
    negation = next(n for n in result.graph if n.op_type == "Neg")
    assert negation.inputs[0] is result.graph.inputs[0]


_STATIC = ([2, 3, 7, 5], [2, 3, 4, 5])
_REFUSALS: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "axis counted from the end of an unknown rank": (
        lambda: one_update(None, None, batch=2),
        "unknown-rank",
    ),
    "axis 0": (lambda: one_update(*_STATIC, batch=2, axis=0), "axis-is-batch"),
    "the default axis of a cache of rank 2": (
        lambda: one_update([2, 7], [2, 4], batch=2),
        "axis-is-batch",
    ),
    "axis beyond the rank": (
        lambda: one_update(*_STATIC, batch=2, axis=4),
        "axis-out-of-range",
    ),
    "an unknown mode": (lambda: one_update(*_STATIC, batch=2, mode="wrap"), "bad-mode"),
    "ranks that differ": (
        lambda: one_update([2, 3, 7, 5], [2, 4, 5], batch=2, axis=1),
        "rank-mismatch",
    ),
    "head sizes that differ": (
        lambda: one_update([2, 3, 7, 5], [2, 3, 4, 6], batch=2),
        "non-axis-dim-mismatch",
    ),
    "an update longer than the cache": (
        lambda: one_update([2, 3, 7, 5], [2, 3, 8, 5], batch=2),
        "update-longer-than-cache",
    ),
    "the same in circular mode": (
        lambda: one_update([2, 3, 7, 5], [2, 3, 8, 5], batch=2, mode="circular"),
        "update-longer-than-cache",
    ),
    "write_indices for another batch": (
        lambda: one_update(*_STATIC, batch=3),
        "write-indices-shape",
    ),
    "write_indices of int32": (lambda: _with_indices(_T.INT32, [2]), "element-type"),
    "write_indices of rank 2": (lambda: _with_indices(_T.INT64, [2, 1]), "write-indices-shape"),
    "a constant start behind the last that fits": (
        lambda: _with_constant([0, 4]),
        "write-out-of-range",
    ),
    "a constant negative start": (lambda: _with_constant([-1, 0]), "write-out-of-range"),
}


def _with_indices(dtype: int, dims: list[int]) -> onnx.ModelProto:
    source = one_update(*_STATIC, batch=2)
    source.graph.input[2].CopyFrom(value("write_indices", dtype, dims))
    return source


def _with_constant(starts: list[int]) -> onnx.ModelProto:
    source = one_update(*_STATIC, batch=2)
    del source.graph.input[2]
    array = np.array(starts, np.int64)
    source.graph.initializer.append(numpy_helper.from_array(array, "write_indices"))
    return source


@each(("build", "code"), _REFUSALS)
def test_refusal(build: Callable[[], onnx.ModelProto], code: str) -> None:
    """What the specification forbids, or cannot be known, is refused with its reason and place."""
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(build()), verify=False)
    (refusal,) = refused.value.report.refused
    assert refusal.code == code
    assert refusal.location.node == "ts_present_cache"
    assert refusal.location.op == "TensorScatter"
    assert refused.value.report.output is None


def _of_unknown_rows(
    nodes: str, past: str = "float[2, 3, 7, 5]", outputs: str = ""
) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 11, opset_import: ["": 24]>
        g ({past} past, float[E] flat, int64[4] shape, bool choice)
            => ({past} present{outputs}) {{ rows = Reshape (flat, shape) {nodes} }}""")


@pytest.mark.parametrize(
    ("past", "shape"),
    [
        ("float[2, 3, 7, 5]", [2, 3, None, 5]),
        ("float[B, 3, S, 5]", ["B", 3, None, 5]),
        ("float[?, 3, S, D]", [None, 3, None, "D"]),
    ],
)
def test_a_size_of_the_update_that_only_tensor_scatter_gives_is_declared(
    past: str, shape: list[int | str | None]
) -> None:
    """A scatter by index may write a part of the cache: its graph no longer says the size."""
    result = _lower(_of_unknown_rows("present = TensorScatter (past, rows)", past), opset=18)
    rows = next(v for node in result.graph for v in node.outputs if v.name == "rows")
    assert rows.dtype == ir.DataType.FLOAT
    assert (
        rows.shape is not None
        and [d if isinstance(d, int) else d.value for d in rows.shape] == shape
    )


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        pytest.param(
            """present = If (choice) <
                then_branch = yes () => (float[2, 3, 7, 5] a) { a = TensorScatter (past, rows) },
                else_branch = no () => (float[2, 3, 7, 5] b) { b = Identity (past) }>""",
            "",
            id="the update is there where its TensorScatter never runs",
        ),
        pytest.param(
            "present = TensorScatter (past, rows)",
            ", float[?, ?, ?, ?] rows",
            id="the update is an output",
        ),
        pytest.param(
            "sized = Identity (past) present = TensorScatter (past, sized)",
            "",
            id="inference finds the sizes itself",
        ),
    ],
)
def test_other_updates_keep_the_shape_that_the_file_declares(nodes: str, outputs: str) -> None:
    result = _lower(_of_unknown_rows(nodes, outputs=outputs), opset=18)
    named = {v.name: v for node in result.graph for v in node.outputs}
    shapes = [value.shape for name in ("rows", "sized") if (value := named.get(name))]
    assert all(shape is None or not any(isinstance(d, int) for d in shape) for shape in shapes)


def test_an_unknown_rank_is_enough_for_scatter_nd_with_a_positive_axis() -> None:
    source = one_update(None, None, batch=2, axis=1)
    result, _ = lower(ir.from_proto(source), verify=False)
    assert list(result.graph)[-1].op_type == "ScatterND"


def test_scatter_elements_needs_the_rank() -> None:
    source = one_update(None, None, batch=2, axis=1)
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(source), verify=False, via="scatterelements")
    assert [r.code for r in refused.value.report.refused] == ["unknown-rank"]
