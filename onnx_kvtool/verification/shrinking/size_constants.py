"""Constants that have to do with sizes: which of them follow, and which keep a size as it is."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.verification.shrinking.drawn_weights import (
    QUANTIZED_TYPES,
    WEIGHT_TYPES,
    Skeleton,
    captured,
    code_bits,
)
from onnx_kvtool.verification.shrinking.equal_sizes import Shape, Sizes
from onnx_kvtool.verification.shrinking.shapes import LEAST, LONGEST, Choice


def separated(model: Skeleton) -> Skeleton:
    """Return a model whose nodes share no small integer constants.

    One constant of 32 may be the number of heads here and half of their size there, which are to
    get different sizes; so may one of zero points be as wide as weights of several kinds. Constants
    that bodies read, or that are outputs, stay as they are.
    """
    message = model.copied()
    graph = message.graph
    outer = {value.name for value in (*graph.input, *graph.output)}
    outer.update(name for node in graph.node for name in captured(node))
    shared = {
        name: tensor
        for name, tensor in model.constants.items()
        if name not in outer
        and (
            tensor.data_type in QUANTIZED_TYPES
            or (tensor.data_type in SIZE_TYPES and math.prod(tensor.dims) <= LONGEST)
        )
    }
    taken = {
        *outer,
        *(t.name for t in graph.initializer),
        *(n for x in graph.node for n in x.output),
    }
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        for place, name in enumerate(node.input):
            if name in seen and (own := f"{name}@{index}.{place}") not in taken:
                graph.initializer.add().CopyFrom(shared[name])
                graph.initializer[-1].name = node.input[place] = own
            elif name in shared:
                seen.add(name)
    return replace(model, message=message)


def keep_irregular_tables(model: Skeleton, sizes: Sizes, common: Set[str]) -> None:
    """Keep the sizes of constants if a part would not stand for the whole.

    A part of a table does if it goes on as it began: integers that grow by one number from each
    index to the next, anything else that stays the same. Weights of both models, `common`, may
    hold what they like. What indices point along has to grow as they do, and no number that a
    model computes with may lie among the indices that go.
    """
    tensors = model.constants
    for name, tensor in tensors.items():
        shape = sizes.shapes.get(name)
        if name in common or not shape:
            continue
        if len(shape) == 1 and name in sizes.readers:
            continue  # its elements are sizes
        _keep_irregular(numpy_helper.to_array(tensor), shape)
    for name, size in sizes.tables:
        first, *rest = size.atoms()
        for atom in rest:
            atom.is_pinned = True
        # Indices have to stay within the same part of the size that they point along.
        stride = math.prod(atom.number for atom in rest)
        values = numpy_helper.to_array(tensors[name]).ravel() if name in tensors else np.zeros(0)
        is_whole = 0 < values.size == first.number * stride
        if not is_whole or (values // stride != np.arange(values.size) // stride).any():
            first.is_pinned = True
    numbers = set(_numbers_of_arithmetic(model))
    for shape in sizes.shapes.values():
        for atom in (atom for size in shape or () for atom in size.atoms()):
            if atom.is_indexed and any(1 < n <= atom.number for n in numbers):
                atom.is_pinned = True


def _keep_irregular(values: npt.NDArray[Any], shape: Shape) -> None:
    atoms = [atom for size in shape for atom in size.atoms()]
    parts = values.reshape([atom.number for atom in atoms])
    for axis, atom in enumerate(atoms):
        if atom.is_pinned or atom.number <= LEAST:
            continue
        steps = np.moveaxis(parts, axis, 0)
        if parts.dtype.kind in "iu":
            steps = steps[1:] - steps[:-1]
        if not (steps == steps[:1]).all():
            atom.is_pinned = True


def _numbers_of_arithmetic(model: Skeleton) -> Iterator[int]:
    """Yield the integers that a model computes with: those of constants that are no sizes."""
    read = {
        name
        for node in model.message.graph.node
        if node.op_type in _ARITHMETIC
        for name in node.input
    }
    for name, tensor in model.constants.items():
        if name in read and tensor.data_type in SIZE_TYPES:
            values = np.unique(numpy_helper.to_array(tensor))
            if len(values) <= _FEW:
                yield from (int(value) for value in values)


_FEW = 4
"""Different integers in a constant that a model computes with; a table of indices has more."""

_ARITHMETIC = frozenset(
    {"Add", "Clip", "Div", "Max", "Min", "Mod", "Mul", "Sub", "Less", "Greater"}
)


def shortened(tensor: onnx.TensorProto, shape: Shape, choice: Choice) -> onnx.TensorProto:
    """Return a constant with what is left of it: the first of each part of its sizes."""
    parts = [part for size in shape for part in choice.parts(size)]
    values = numpy_helper.to_array(tensor).reshape([old for old, _ in parts])
    values = values[tuple(slice(new) for _, new in parts)]
    values = values.reshape([choice.of(size) for size in shape])
    return numpy_helper.from_array(np.ascontiguousarray(values), tensor.name)


def keep_derived_numbers(a: Skeleton, b: Skeleton, one: Sizes, other: Sizes) -> None:
    """Keep a size if one model computed a number from it that the other does not have.

    The mean of 4096 columns may be written as a sum times 1/4096. The scale of an Attention that
    gives none follows from the size of its heads, and the zero point of quantized values from their
    bits: 8 is not the root of 64 then. A number that one model has as a
    float32 attribute and the other as a constant of 16 bits is the same but for rounding.
    """
    here, there = ({*_numbers(m.message.graph)} for m in (a, b))
    known = {*_scales(one), *_scales(other)}
    known |= {*_middles(a.message.graph.node), *_middles(b.message.graph.node)}
    differing = {*_lacking(here, there | known), *_lacking(there, here | known)}
    sizes = [size for m in (one, other) for s in m.shapes.values() for size in s or ()]
    numbers = {size.root().number for size in sizes}
    made = {size for size in numbers if size > _TELLING and _stems(size, differing)}
    for size in sizes:
        if size.root().number in made:
            size.pin()


_TELLING = 8
"""The smallest size that numbers certainly come from: half of what computes is 2."""

_CLOSE = 2.0**-8
"""Relative; bfloat16 rounds by half as much."""


def _lacking(numbers: Set[float], others: Set[float]) -> Iterator[float]:
    """Yield the numbers that none of `others` is close to."""
    ordered = sorted(number for number in others if math.isfinite(number))
    for number in numbers - others:
        if math.isfinite(number):
            place = bisect_left(ordered, number)
            near = ordered[max(place - 1, 0) : place + 1]
            if not any(math.isclose(number, one, rel_tol=_CLOSE) for one in near):
                yield number


def _scales(sizes: Sizes) -> Iterator[float]:
    for size in sizes.scales.values():
        if number := size.root().number:
            yield from (number**-0.5, number**-0.25)


def _middles(nodes: Iterable[onnx.NodeProto]) -> Iterator[float]:
    """Yield the zero points that quantized operators use if none is given."""
    for node in nodes:
        if (bits := code_bits(node)) is not None:
            yield 2.0 ** (bits - 1)


def _stems(size: int, numbers: Iterable[float]) -> bool:
    made = (size, 1 / size, math.sqrt(size), 1 / math.sqrt(size), size**-0.25)
    return any(math.isclose(n, m, rel_tol=_CLOSE) for n in numbers for m in made)


def _numbers(graph: onnx.GraphProto) -> Iterator[float]:
    for tensor in graph.initializer:
        yield from _scalar(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:
                yield attribute.f
            elif attribute.type == onnx.AttributeProto.TENSOR:
                yield from _scalar(attribute.t)


def _scalar(tensor: onnx.TensorProto) -> Iterator[float]:
    is_float = tensor.data_type in WEIGHT_TYPES
    if is_float and math.prod(tensor.dims) == 1 and not tensor.external_data:
        yield float(numpy_helper.to_array(tensor).reshape(-1)[0])
