"""Masks that are as long as the tokens so far, made as long as the caches.

A mask of P + c columns, P the tokens before a step, becomes one of N columns, N the capacity; the
columns behind the tokens are hidden from Attention, whatever they hold. That is right where

- nothing but the masks of Attention depends on the length, and
- the mask shows the same key to the same query for every length.

The second is held for the shortest and longest masks, by what an element is as a function of its
coordinates and of the inputs. Conditions of a model on its length (a window) change along with it,
so that they show at one end or the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.ops.element_type import WHOLE_TYPES
from onnx_kvtool.rewrite.engine.names import Names
from onnx_kvtool.rewrite.raising.stage import RaiseOutcome
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.shapes.inferred_maps import InferredIndexMaps
from onnx_kvtool.symbolic.atoms import Atom, Dimension, Element, Extent
from onnx_kvtool.symbolic.dims import dims_of
from onnx_kvtool.symbolic.expression import Expr, integer, variable
from onnx_kvtool.symbolic.sizes import Shape, read_size

__all__ = ["masks_of_capacity"]

_Maps = tuple[InferredIndexMaps, InferredIndexMaps]
_Shapes = tuple[Mapping[ir.Value, Shape], Mapping[ir.Value, Shape]]

_MASK = 3
_FEWEST = 4
"""Rows of which the shortest and the longest masks differ."""


_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Max", "Min", "Where", "And"})
_MOVING = frozenset({"Cast", "Expand", "Identity", "Pad", "Slice", "Squeeze", "Unsqueeze"})


def masks_of_capacity(
    model: ir.Model,
    capacity: int | str | None,
    grown: Collection[str],
    outcome: RaiseOutcome,
) -> dict[str, int]:
    """Return the sizes of the names that masks share with caches that grew.

    With them all masks have as many columns as caches have rows. The nodes that count up to the
    tokens so far count up to the length of a mask then, in place.

    Args:
        model: A raised model whose other sizes are fixed; masks hide what is not in use.
        capacity: Rows of the caches.
        grown: Names along which caches grew.
        outcome: Gets a note.

    Returns:
        Sizes by name; empty where nothing is to be fixed, or where that is not known to be right.
    """
    counter = next((one.name for one in outcome.inputs_added), None)
    counts = next((value for value in model.graph.inputs if value.name == counter), None)
    found = list(_lengths(model, grown))
    if not isinstance(capacity, int) or counts is None or not found:
        return {}
    more = {step for _, _, _, step in found}
    if len(more) != 1 or len(list(graphs(model))) > 1:
        return {}  # bodies and functions may read sizes too
    (step,) = more
    if not 0 < step < capacity or capacity < _FEWEST:
        return {}
    names = {name for _, _, name, _ in found}
    value, axis, _, _ = found[0]
    _count_to_length(model, value, axis, variable(Element(counts, (integer(0),))) + step)
    least = max(step, 2)  # of a size of 1 nothing says along which axis a value differs
    lengths = sorted({least, min(least + 1, capacity), max(capacity - 1, least), capacity})
    try:
        runs = [_run(model, names, length - step) for length in lengths]
    except KvtoolError:
        return {}
    if any(not _alike(model, runs[-1], other) for other in runs[:-1]):
        return {}
    for mask, _, _, _ in found:
        outcome.notes.append(
            f"`{mask.name}` is {capacity} long: what it says of rows that are not in use is nothing"
        )
    return dict.fromkeys(names, capacity - step)


def _lengths(model: ir.Model, grown: Collection[str]) -> Iterator[tuple[ir.Value, int, str, int]]:
    """Yield the axes of inputs that are `name + step` long, `name` one that caches grew along."""
    for value in model.graph.inputs:
        for axis, dim in enumerate(dims_of(value) or ()):
            size = read_size(dim) if isinstance(dim, str) else None
            for name in grown if size is not None else ():
                rest = None if size is None else (size - variable(Dimension(name))).number
                if rest is not None:
                    yield value, axis, name, rest


def _count_to_length(model: ir.Model, mask: ir.Value, axis: int, total: Expr) -> None:
    """Let every Range up to the tokens so far count up to the length of a mask, in place."""
    maps = infer_model(model).run.contents(model.opset_imports[""])
    names = Names(model)
    for node in tuple(model.graph):
        if node.op_type != "Range" or node.domain != "" or node.inputs[1] is None:
            continue
        start, limit, step = (None if v is None else maps.of(v).scalar() for v in node.inputs)
        if limit != total or start != integer(0) or step != integer(1):
            continue
        if node.inputs[1].dtype != ir.DataType.INT64:
            continue
        ends = [ir.AttrInt64("start", axis), ir.AttrInt64("end", axis + 1)]
        shape = ir.Node("", "Shape", [mask], ends, name=names.fresh("kvtool/length"))
        squeeze = ir.Node("", "Squeeze", [shape.outputs[0]], name=names.fresh("kvtool/columns"))
        made = [shape, squeeze]
        for new in made:
            new.outputs[0].name = names.fresh(f"{new.name}_output")
            new.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        model.graph.insert_before(node, made)
        node.replace_input_with(1, squeeze.outputs[0])
        node.outputs[0].shape = None


def _run(model: ir.Model, names: Collection[str], past: int) -> Forward:
    return infer_model(model, dict.fromkeys(names, past)).run


def _alike(model: ir.Model, one: Forward, other: Forward) -> bool:
    """Return whether two lengths make no difference but for how long masks are."""
    opset = model.opset_imports[""]
    maps = one.contents(opset), other.contents(opset)
    shapes = one.knowledge.shapes, other.knowledge.shapes
    if one.knowledge.conflicts or other.knowledge.conflicts:
        return False

    tainted = {v for v in model.graph.inputs if shapes[0].get(v) != shapes[1].get(v)}

    def same(value: ir.Value) -> bool:
        """Whether a value has one shape and, if it is of integers, holds the same."""
        shape, contents = shapes[0].get(value), [held.of(value) for held in maps]
        if shape is None or shape != shapes[1].get(value) or value.dtype not in WHOLE_TYPES:
            return False
        if not contents[0].parts or contents[0].parts != contents[1].parts:
            return False
        return not any(_rests_on(part, tainted) for part in (*shape, *contents[0].parts))

    for node in model.graph:
        read = [index for index, v in enumerate(node.inputs) if v in tainted]
        if not read:
            tainted.update(v for v in node.outputs if shapes[0].get(v) != shapes[1].get(v))
        elif node.op_type == "Attention" and node.domain == "" and read == [_MASK]:
            mask = node.inputs[_MASK]
            if mask is None or not _is_the_same(mask, maps, shapes, tainted):
                return False
        else:
            tainted.update(value for value in node.outputs if not same(value))
    return not any(value in tainted for value in model.graph.outputs)


def _is_the_same(
    mask: ir.Value, maps: _Maps, shapes: _Shapes, tainted: Collection[ir.Value]
) -> bool:
    """Return whether a mask is made, element by element, of integers that are the same."""
    waiting, seen = [mask], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value in seen or value not in tainted or _rests_on_inputs(value, maps):
            continue
        seen.add(value)
        node = value.producer()
        if node is None or node.domain != "":
            return False
        data = node.inputs[0]
        if node.op_type in _ELEMENTWISE:
            waiting += [v for v in node.inputs if v is not None]
            continue
        if data is None or node.op_type not in _MOVING:
            return False
        if node.op_type == "Slice" and any(s.get(data) != s.get(value) for s in shapes):
            return False  # which may cut at another place for another length
        if node.op_type == "Pad" and not all(_is_behind(node, held) for held in maps):
            return False
        waiting.append(data)
    return True


def _is_behind(node: ir.Node, held: InferredIndexMaps) -> bool:
    """Return whether a Pad adds columns behind the last ones, and nothing else."""
    pads = node.inputs[1] if len(node.inputs) > 1 else None
    numbers = None if pads is None else held.of(pads).vector()
    return numbers is not None and all(number == integer(0) for number in numbers[:-1])


def _rests_on_inputs(value: ir.Value, maps: _Maps) -> bool:
    """Return whether an element is the same for both lengths, and a function of inputs."""
    if value.dtype not in WHOLE_TYPES:
        return False
    element, other = (held.of(value).element for held in maps)
    if element is None or element != other:
        return False
    return all(
        not isinstance(atom, Extent)
        and (not isinstance(atom, Element) or atom.value.is_graph_input())
        for atom in _atoms(element)
    )


def _rests_on(expr: Expr, values: Collection[ir.Value]) -> bool:
    """Return whether an expression reads sizes of some values, or what they hold."""
    return any(isinstance(atom, Element | Extent) and atom.value in values for atom in _atoms(expr))


def _atoms(expr: Expr) -> Iterator[Atom]:
    """Yield the variables of an expression, those inside of others included."""
    for atom in expr.atoms():
        yield atom
        for part in atom.parts:
            yield from _atoms(part)
