"""Random arithmetic on shapes: with sizes fixed, folded or not, results stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.fixing.dynamic import dynamic_parts
from onnx_kvtool.rewrite.fixing.fix import fix_sizes
from tests.grids import search

_OPSET = 17
_RANK = 3


@dataclass
class _Drawing:
    """A graph that grows: vectors of int64 whose length is known, each made of earlier ones."""

    draw: Callable[[st.SearchStrategy[int]], int]
    made: list[onnx.NodeProto] = field(default_factory=list)
    held: list[onnx.TensorProto] = field(default_factory=list)
    vectors: list[tuple[str, int]] = field(default_factory=list)

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.made)}"
        self.made.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def constant(self, numbers: object, dtype: type = np.int64) -> str:
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(numbers, dtype), name))
        return name

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def vector(self) -> tuple[str, int]:
        return self.vectors[self.number(0, len(self.vectors) - 1)]

    def step(self) -> None:
        """Make one more vector."""
        name, length = self.vector()
        kind = self.number(0, len(_STEPS) - 1)
        self.vectors.append(_STEPS[kind](self, name, length))


def _shape(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    start, end = d.number(-_RANK, _RANK - 1), d.number(-_RANK, _RANK)
    return d.op("Shape", "x", start=start, end=end), len(range(_RANK)[start:end])


def _arithmetic(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    op = ("Add", "Sub", "Mul", "Max", "Min")[d.number(0, 4)]
    return d.op(op, name, d.constant(d.number(-3, 4))), length


def _division(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    by = d.constant([d.number(1, 3) * (-1 if d.number(0, 3) == 0 else 1)])
    return d.op(("Div", "Mod")[d.number(0, 1)], name, by), length


def _joined(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    other, more = d.vector()
    return d.op("Concat", name, other, axis=0), length + more


def _taken(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    if not length:
        return name, length
    picked = [d.number(-length, length - 1) for _ in range(d.number(1, 3))]
    return d.op("Gather", name, d.constant(picked), axis=0), len(picked)


def _part(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    start, end = d.number(0, 4), d.number(-4, 5)
    step = d.number(1, 3) * (1 if d.number(0, 1) else -1)
    axes = [d.constant([n]) for n in (start, end, 0, step)]
    return d.op("Slice", name, *axes), len(range(length)[start:end:step])


def _chosen(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    compare = ("Equal", "Less", "Greater", "GreaterOrEqual", "LessOrEqual")[d.number(0, 4)]
    is_so = d.op(compare, name, d.constant(d.number(-1, 6)))
    if d.number(0, 1):
        is_so = d.op("Not", is_so)
    return d.op("Where", is_so, d.constant(d.number(-2, 2)), name), length


def _counted(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    total = d.op("ReduceSum", name, d.constant([0]), keepdims=0)
    limit = d.op("Clip", total, d.constant(1), d.constant(5))
    numbers = d.op("Range", d.constant(0), limit, d.constant(1))
    first = d.op("Slice", numbers, d.constant([0]), d.constant([1]))
    return d.op("Expand", first, d.constant([2])), 2


def _turned(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    narrow = d.op("Cast", name, to=T.INT32)
    column = d.op("Unsqueeze", narrow, d.constant([1]))
    spread = d.op("Tile", column, d.constant([1, 2]))
    row = d.op("Reshape", d.op("Transpose", spread, perm=[1, 0]), d.constant([-1]))
    return d.op("Cast", row, to=T.INT64), 2 * length


def _filled(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    value = numpy_helper.from_array(np.array([d.number(-2, 3)]))
    size = d.op("Shape", name)
    return d.op("Add", d.op("ConstantOfShape", size, value=value), name), length


def _run_up(d: _Drawing, name: str, length: int) -> tuple[str, int]:
    exclusive, reverse = d.number(0, 1), d.number(0, 1)
    return d.op("CumSum", name, d.constant(0), exclusive=exclusive, reverse=reverse), length


_STEPS: tuple[Callable[[_Drawing, str, int], tuple[str, int]], ...] = (
    *(_shape, _arithmetic, _division, _joined, _taken, _part),
    *(_chosen, _counted, _turned, _filled, _run_up),
)


@st.composite
def _models(draw: Callable[[st.SearchStrategy[int]], int]) -> tuple[onnx.ModelProto, list[int]]:
    """Draw a graph over `x` of symbolic sizes and a vector `p` that nobody knows, and sizes."""
    drawing = _Drawing(draw)
    drawing.vectors = [(drawing.op("Shape", "x"), _RANK), ("p", 2)]
    for _ in range(drawing.number(2, 9)):
        drawing.step()
        if drawing.vectors[-1][1] > 24:
            break
    outputs = [helper.make_tensor_value_info("y", T.INT64, ["N"])]
    drawing.made.append(helper.make_node("Identity", [drawing.vectors[-1][0]], ["y"]))
    if drawing.number(0, 1):  # a constant of floats that sizes make
        size = drawing.op("Clip", drawing.vectors[-1][0], drawing.constant(0), drawing.constant(2))
        few = drawing.op("Slice", size, drawing.constant([0]), drawing.constant([3]))
        half = numpy_helper.from_array(np.array([0.1], np.float32))
        drawing.made.append(helper.make_node("ConstantOfShape", [few], ["z"], value=half))
        outputs.append(onnx.ValueInfoProto(name="z"))
        outputs[-1].type.tensor_type.elem_type = T.FLOAT
    inputs = [
        helper.make_tensor_value_info("x", T.FLOAT, ["A", "B", "C"]),
        helper.make_tensor_value_info("p", T.INT64, [2]),
    ]
    graph = helper.make_graph(drawing.made, "g", inputs, outputs, drawing.held)
    imports = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return model, [drawing.number(1, 5) for _ in range(_RANK)]


def _run(data: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # others wait busily
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options).run(None, feeds)


@search(300)
@given(_models())
def test_results_stay(drawn: tuple[onnx.ModelProto, list[int]]) -> None:
    source, sizes = drawn
    feeds = {"x": np.zeros(sizes, np.float32), "p": np.array([3, -2])}
    expected = _run(source.SerializeToString(), feeds)
    model = ir.from_proto(source)
    fixed = fix_sizes(model, dict(zip("ABC", sizes, strict=True)))
    assert not fixed.refused and fixed.inference is not None
    reads = any("p" in node.input for node in source.graph.node)
    if not reads:
        assert dynamic_parts(model, fixed.inference) == []
        assert {node.op_type for _, _, node in nodes(model)} <= {"Constant"}
    assert not any(
        Trait.GIVES_SIZES in traits(node) and node.inputs[0].name == "x" for node in model.graph
    )
    found = _run(serialize(model), feeds)
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
