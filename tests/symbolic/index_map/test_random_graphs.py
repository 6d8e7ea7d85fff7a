"""No false claim: random integer graphs are run, and every description is compared with the result.

The shapes of the inputs are symbolic. A graph is drawn so that it runs at one set of sizes and is
then run at others, where sizes that were different become equal, 1 or 0: a description that holds
only for sizes that happen to differ is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given, note
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.expressions import Element, Expr, integer, variable
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, as_index, simplified
from tests.grids import search
from tests.symbolic.index_map.evaluate import World, evaluate

_OPSET = 18
_INPUTS: dict[str, tuple[str | int, ...]] = {
    "start": (),
    "starts": ("B",),
    "rows": ("L",),
    "grid": ("B", "L"),
    "one": (1,),
    "table": (2, "S"),
}
_FLOATS: dict[str, tuple[str | int, ...]] = {"cache": ("B", 3, "S", 5), "update": ("B", 3, "L", 5)}
_DRAWN = {"B": 2, "L": 3, "S": 7}
_OTHERS = [
    {"B": 1, "L": 3, "S": 4},
    {"B": 3, "L": 1, "S": 3},
    {"B": 2, "L": 2, "S": 2},
    {"B": 2, "L": 0, "S": 5},
]

Arrays = dict[str, Any]


class _Builder:
    """A graph under construction, with the arrays that its values hold at the drawn sizes."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self.arrays: Arrays = _draw_arrays(data, _DRAWN)

    def pick(self, suits: Callable[[Any], bool] = lambda a: True) -> str | None:
        names = [
            n
            for n, a in self.arrays.items()
            if a.dtype != np.float32 and a.size <= 200 and suits(a)
        ]
        # The newest values first: graphs become deep rather than wide.
        return self.data.draw(st.sampled_from(names[::-1])) if names else None

    def integers(self) -> str | None:
        return self.pick(lambda a: a.dtype == np.int64)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def array(self) -> str:
        shape = self.data.draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (1, 1, 3)]))
        kind = self.data.draw(st.sampled_from(["any", "count", "same"]))
        if kind == "count":
            found = np.arange(int(np.prod(shape))).reshape(shape)
        elif kind == "same":
            found = np.full(shape, self.number(-3, 8))
        else:
            count = int(np.prod(shape))
            found = np.asarray(
                self.data.draw(st.lists(st.integers(-4, 9), min_size=count, max_size=count))
            ).reshape(shape)
        return self.constant(found.astype(np.int64))

    def operand(self) -> str:
        found = self.integers() if self.number(0, 3) else None
        return found if found is not None else self.array()

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> None:
        """Append a node where it runs at the drawn sizes."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        known = {**self.arrays, **self.constants}
        try:
            results = _run([node], {n: known[n] for n in inputs}, names)
        except Exception:  # noqa: BLE001 - whatever the reference refuses is no graph
            return
        if any(
            r.size > 300 or (r.size and np.abs(r.astype(np.float64)).max() > 2**40)
            for r in results.values()
        ):
            return
        self.nodes.append(node)
        self.arrays |= results


def _draw_arrays(data: st.DataObject, sizes: Mapping[str, int]) -> Arrays:
    """Return small integers for the integer inputs and zeros for the others."""
    found: Arrays = {}
    for name, dims in _INPUTS.items():
        shape = tuple(sizes[d] if isinstance(d, str) else d for d in dims)
        count = int(np.prod(shape))
        numbers = data.draw(st.lists(st.integers(-3, 9), min_size=count, max_size=count))
        found[name] = np.asarray(numbers, np.int64).reshape(shape)
    for name, dims in _FLOATS.items():
        found[name] = np.zeros([sizes[d] if isinstance(d, str) else d for d in dims], np.float32)
    return found


def _run(nodes: list[onnx.NodeProto], arrays: Mapping[str, Any], wanted: list[str]) -> Arrays:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), None)
        for n, a in arrays.items()
    ]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in wanted])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    with np.errstate(all="raise"):
        results = ReferenceEvaluator(model).run(None, dict(arrays))
    assert isinstance(results, list)
    return {n: np.asarray(r) for n, r in zip(wanted, results, strict=True)}


def _binary(b: _Builder) -> None:
    op = b.data.draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min", "Div", "Mod"]))
    b.add(op, [b.operand(), b.operand()])


def _by_constant(b: _Builder) -> None:
    op = b.data.draw(st.sampled_from(["Add", "Mul", "Div", "Mod", "Max", "Min"]))
    b.add(op, [b.operand(), b.constant(np.int64(b.number(-2, 8)))])


def _compare(b: _Builder) -> None:
    op = b.data.draw(st.sampled_from(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]))
    b.add(op, [b.operand(), b.operand()])


def _logic(b: _Builder) -> None:
    one, other = (b.pick(lambda a: a.dtype == np.bool_) for _ in range(2))
    if one is not None and other is not None:
        op = b.data.draw(st.sampled_from(["And", "Or", "Xor", "Not"]))
        b.add(op, [one] if op == "Not" else [one, other])


def _where(b: _Builder) -> None:
    condition = b.pick(lambda a: a.dtype == np.bool_)
    if condition is None:
        wrapped = b.operand()
        b.add("Less", [wrapped, b.constant(np.int64(0))])
        return
    b.add("Where", [condition, b.operand(), b.operand()])


def _wrap(b: _Builder) -> None:
    """Write the wrap of negative indices: Where(x < 0, x + n, x)."""
    x = b.integers()
    if x is None:
        return
    n = b.constant(np.int64(b.number(1, 8)))
    b.add("Less", [x, b.constant(np.int64(0))])
    b.add("Add", [x, n])
    if len(b.nodes) >= 2:
        b.add("Where", [b.nodes[-2].output[0], b.nodes[-1].output[0], x])


def _unary(b: _Builder) -> None:
    b.add(b.data.draw(st.sampled_from(["Neg", "Abs", "Identity"])), [b.operand()])


def _cast(b: _Builder) -> None:
    value = b.pick()
    to = b.data.draw(st.sampled_from([T.INT64, T.INT64, T.BOOL, T.FLOAT]))
    if value is not None and to != T.FLOAT:
        b.add("Cast", [value], to=to)


def _mask(b: _Builder) -> None:
    """Write 1 - mask in floats, and come back."""
    value = b.pick(lambda a: a.dtype == np.bool_)
    if value is not None:
        b.add("Cast", [value], to=T.FLOAT)
        b.add("Sub", [b.constant(np.float32(1)), b.nodes[-1].output[0]])
        b.add("Cast", [b.nodes[-1].output[0]], to=T.INT64)


def _clip(b: _Builder) -> None:
    limits = [b.constant(np.int64(b.number(-2, 3))), b.constant(np.int64(b.number(0, 8)))]
    b.add("Clip", [b.operand(), *limits])


def _range(b: _Builder) -> None:
    scalar = b.pick(lambda a: a.dtype == np.int64 and a.shape == ())
    start = (
        scalar if scalar is not None and b.number(0, 1) else b.constant(np.int64(b.number(-2, 3)))
    )
    limit = b.pick(lambda a: a.dtype == np.int64 and a.shape == ())
    if limit is not None:
        b.add(
            "Range",
            [start, limit, b.constant(np.int64(b.data.draw(st.sampled_from([1, 1, 2, -1]))))],
        )


def _shape(b: _Builder) -> None:
    value = b.data.draw(st.sampled_from(list(b.arrays)[::-1]))
    given = {"start": b.number(-3, 2)} if b.number(0, 1) else {}
    if given and b.number(0, 1):
        given["end"] = b.number(-1, 4)
    b.add("Shape", [value], **given)


def _size(b: _Builder) -> None:
    """Write one size as a scalar, as exporters do."""
    value = b.data.draw(st.sampled_from(list(b.arrays)[::-1]))
    rank = b.arrays[value].ndim
    if rank:
        b.add("Shape", [value])
        b.add("Gather", [b.nodes[-1].output[0], b.constant(np.int64(b.number(-rank, rank - 1)))])


def _gather(b: _Builder) -> None:
    data = b.pick(lambda a: a.ndim > 0)
    if data is not None:
        rank = b.arrays[data].ndim
        b.add("Gather", [data, b.operand()], axis=b.number(-rank, rank - 1))


def _slice(b: _Builder) -> None:
    data = b.pick(lambda a: a.ndim > 0)
    if data is None:
        return
    axis = b.number(0, b.arrays[data].ndim - 1)

    def end(low: int, high: int) -> str:
        given = b.pick(lambda a: a.dtype == np.int64 and a.shape == (1,))
        if given is not None and b.number(0, 1):
            return given
        return b.constant(np.asarray([b.number(low, high)], np.int64))

    step = b.data.draw(st.sampled_from([1, 1, 1, 2, -1]))
    b.add("Slice", [data, end(-4, 4), end(-2, 9), b.constant([axis]), b.constant([step])])


def _reshape(b: _Builder) -> None:
    data = b.pick()
    if data is None:
        return
    count = b.arrays[data].size
    targets = [
        [-1],
        [-1, 1],
        [1, -1],
        [1, -1, 1],
        [-1, 1, 1],
        [0, -1],
        [-1, 2],
        [2, -1],
        [-1, 3],
        [-1, 6],
    ]
    if count == 1:
        targets.append([])
    vector = b.pick(
        lambda a: a.dtype == np.int64 and a.ndim == 1 and a.size > 0 and a.prod() == count
    )
    if vector is not None and b.number(0, 1):
        b.add("Reshape", [data, vector])
    else:
        target = b.data.draw(st.sampled_from(targets))
        b.add("Reshape", [data, b.constant(np.asarray(target, np.int64))])


def _unsqueeze(b: _Builder) -> None:
    data = b.pick(lambda a: a.ndim < 4)
    if data is not None:
        rank = b.arrays[data].ndim + 1
        b.add("Unsqueeze", [data, b.constant([b.number(-rank, rank - 1)])])


def _squeeze(b: _Builder) -> None:
    data = b.pick(lambda a: 1 in a.shape)
    if data is not None:
        axes = [b.constant([b.arrays[data].shape.index(1)])] if b.number(0, 2) else []
        b.add("Squeeze", [data, *axes])


def _transpose(b: _Builder) -> None:
    data = b.pick(lambda a: a.ndim > 1)
    if data is not None:
        b.add("Transpose", [data], perm=b.data.draw(st.permutations(range(b.arrays[data].ndim))))


def _expand(b: _Builder) -> None:
    data = b.pick()
    shape = b.pick(lambda a: a.dtype == np.int64 and a.ndim == 1 and 0 < a.size < 5)
    if data is not None and shape is not None and (b.arrays[shape] > 0).all():
        b.add("Expand", [data, shape])


def _noisy_expand(b: _Builder) -> None:
    """Write an Expand to the larger of two shapes, as torch's index_put."""
    rank = b.number(1, 3)
    one, other = (b.pick(lambda a: a.ndim == rank) for _ in range(2))
    if one is not None and other is not None:
        b.add("Shape", [one])
        b.add("Shape", [other])
        b.add("Max", [b.nodes[-2].output[0], b.nodes[-1].output[0]])
        b.add("Expand", [one, b.nodes[-1].output[0]])


def _tile(b: _Builder) -> None:
    data = b.pick(lambda a: a.ndim > 0)
    if data is not None:
        repeats = [b.number(1, 2) for _ in range(b.arrays[data].ndim)]
        b.add("Tile", [data, b.constant(repeats)])


def _concat(b: _Builder) -> None:
    first = b.pick(lambda a: a.ndim > 0)
    if first is None:
        return
    like = b.arrays[first]
    others = [
        b.pick(lambda a: a.ndim == like.ndim and a.dtype == like.dtype)
        for _ in range(b.number(0, 2))
    ]
    b.add(
        "Concat",
        [first, *(o for o in others if o is not None)],
        axis=b.number(-like.ndim, like.ndim - 1),
    )


def _pair(b: _Builder) -> None:
    """Write index tuples from two values of one shape."""
    one = b.integers()
    if one is None:
        return
    other = b.pick(lambda a: a.dtype == np.int64 and a.shape == b.arrays[one].shape)
    axis = b.constant([-1])
    before = len(b.nodes)
    b.add("Unsqueeze", [one, axis])
    b.add("Unsqueeze", [other or one, axis])
    if len(b.nodes) == before + 2:
        b.add("Concat", [b.nodes[-2].output[0], b.nodes[-1].output[0]], axis=-1)


def _split(b: _Builder) -> None:
    data = b.pick(lambda a: a.ndim > 0 and a.shape[-1] > 1)
    if data is not None:
        size = b.arrays[data].shape[-1]
        b.add("Split", [data, b.constant([1, size - 1])], outputs=2, axis=-1)


def _fill(b: _Builder) -> None:
    shape = b.pick(lambda a: a.dtype == np.int64 and a.ndim == 1 and 0 < a.size < 4)
    if shape is not None and (b.arrays[shape] >= 0).all():
        value = numpy_helper.from_array(np.asarray([b.number(-2, 4)], np.int64))
        b.add("ConstantOfShape", [shape], value=value)


def _scatter(b: _Builder) -> None:
    data = b.pick(lambda a: a.dtype == np.int64 and a.ndim == 1 and a.size > 0)
    update = b.pick(lambda a: a.dtype == np.int64 and a.shape == (1,))
    if data is not None and update is not None:
        place = b.number(-b.arrays[data].size, b.arrays[data].size - 1)
        b.add("ScatterElements", [data, b.constant([place]), update], axis=0)


def _count(b: _Builder) -> None:
    data = b.pick(lambda a: a.dtype == np.int64 and a.ndim > 0)
    if data is not None:
        axis = b.constant(np.int64(b.number(0, b.arrays[data].ndim - 1)))
        b.add("CumSum", [data, axis], exclusive=b.number(0, 1), reverse=b.number(0, 1))


def _one_hot(b: _Builder) -> None:
    indices = b.pick(lambda a: a.dtype == np.int64 and a.ndim < 3)
    if indices is not None:
        depth = b.constant(np.int64(b.number(1, 5)))
        b.add("OneHot", [indices, depth, b.constant([b.number(-1, 1), 3])], axis=b.number(-1, 0))


_STEPS: list[Callable[[_Builder], None]] = [
    _binary, _binary, _by_constant, _by_constant, _compare, _logic, _where, _where, _wrap, _unary,
    _cast, _mask, _clip, _range, _range, _shape, _size, _size, _gather, _gather, _slice, _slice,
    _reshape, _reshape, _unsqueeze, _squeeze, _transpose, _expand, _expand, _noisy_expand, _tile,
    _concat, _pair, _split, _fill, _scatter, _count, _one_hot,
]  # fmt: skip


def _model(b: _Builder) -> onnx.ModelProto:
    names = [n for node in b.nodes for n in node.output]
    inputs = [helper.make_tensor_value_info(n, T.INT64, d) for n, d in _INPUTS.items()]
    inputs += [helper.make_tensor_value_info(n, T.FLOAT, d) for n, d in _FLOATS.items()]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in b.constants.items()]
    graph = helper.make_graph(
        b.nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in names], initializer=constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def _is_legal(nodes: list[onnx.NodeProto], world: World) -> bool:
    """Return whether the graph is one of which descriptions claim anything.

    The specification has to let it run; the reference is more lenient.
    """
    for node in nodes:
        given = [world.arrays[n] for n in node.input]
        if node.op_type == "Split" and given[1].sum() != given[0].shape[-1]:
            return False
        # A size that is computed and 0 copies that of the input. Inference takes such sizes for
        # positive and says so (`Knowledge.assumed`).
        if node.op_type == "Reshape" and world.sizes["L"] == 0 and (given[1] == 0).any():
            return False
    return True


def _check(maps: IndexMaps, value: ir.Value, array: Any, world: World) -> None:
    held = maps.of(value)
    if held.shape is None:
        return
    assert tuple(evaluate(size, (), world) for size in held.shape) == array.shape, value.name
    if not held.parts or array.size > 64:
        return
    for at in itertools.product(*(range(n) for n in array.shape)):
        part = held.parts[0] if held.axis is None else held.parts[at[held.axis]]
        expected = int(array[at])
        assert evaluate(part, at, world) == expected, (value.name, str(part), at)
        _check_rewritings(part, held.facts, at, expected, world)


def _check_rewritings(
    part: Expr, facts: Facts, at: tuple[int, ...], expected: int, world: World
) -> None:
    for size in (1, 3, 6):
        if -size <= expected < size:
            assert evaluate(as_index(part, integer(size), facts), at, world) == expected
    # Whether a number per row is negative differs from row to row; what follows is about this one.
    start = next((a for a in part.atoms() if isinstance(a, Element) and not variable(a).axes), None)
    if start is not None and evaluate(variable(start), at, world) >= 0:
        known = facts.given(variable(start))
        assert evaluate(simplified(part, known), at, world) == expected


def _check_folded(folder: ConstantFolder, value: ir.Value, array: Any) -> None:
    """Compare the elements that are folded, which is done beside the rules, with those of a run."""
    folded = folder.partial(value)
    if folded is not None:
        assert folded.numbers.shape == array.shape
        assert (folded.numbers == array)[folded.known].all()


@search(100)
@given(data=st.data())
def test_every_description_holds_when_the_graph_is_run(data: st.DataObject) -> None:
    builder = _Builder(data)
    for _ in range(data.draw(st.integers(2, 12))):
        data.draw(st.sampled_from(_STEPS))(builder)
    if not builder.nodes:
        return
    proto = _model(builder)
    note(onnx.printer.to_text(proto))
    model = ir.from_proto(proto)
    annotate(model, lambda node: True)
    maps, folder = IndexMaps(_OPSET), ConstantFolder()
    evaluator = ReferenceEvaluator(proto)
    names = [n for node in builder.nodes for n in node.output]
    for sizes in [_DRAWN, *_OTHERS]:
        arrays = builder.arrays if sizes is _DRAWN else _draw_arrays(data, sizes)
        fed = {n: arrays[n] for n in (*_INPUTS, *_FLOATS)}
        try:
            with np.errstate(all="raise"):
                results = evaluator.run(None, fed)
        except Exception:  # noqa: BLE001 - it does not run at these sizes: nothing is claimed
            continue
        assert isinstance(results, list)
        ran = {n: np.asarray(r) for n, r in zip(names, results, strict=True)}
        note(str(sizes))
        world = World({**fed, **builder.constants, **ran}, sizes)
        if not _is_legal(builder.nodes, world):
            continue
        for node in model.graph:
            for value in node.outputs:
                _check(maps, value, ran[value.name or ""], world)
                _check_folded(folder, value, ran[value.name or ""])
