"""Two models made small together, by one choice of sizes and one draw of weights."""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.files.external_data import array
from onnx_kvtool.core.quantity import binary_bytes
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.inputs.plan import plan
from onnx_kvtool.runtime.verification.report import Shrunken
from onnx_kvtool.runtime.verification.shrinking.shapes import Shapes, shapes_of
from onnx_kvtool.runtime.verification.shrinking.sizes import Size, pin, unify
from onnx_kvtool.runtime.verification.shrinking.skeleton import SMALL, WEIGHT_TYPES, Skeleton
from onnx_kvtool.runtime.verification.weights import same_values

__all__ = ["CannotShrink", "Pair", "check_weights", "shrink"]

_FIRST, _STEP = 24, 8
"""New sizes: small, each another one, and multiples of what kernels like."""

_READ = 1 << 16
"""Bytes; a weight that keeps its shape and takes at most so many keeps its values."""


class CannotShrink(KvtoolError):
    """No copies of the models that mean the same are small enough to be run.

    Attributes:
        needed: Bytes that the weights of a copy would take; 0 if that is not the reason.
    """

    def __init__(self, message: str, *, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


@dataclass(frozen=True, slots=True)
class Pair:
    """Two copies.

    Attributes:
        a: Copy of A.
        b: Copy of B.
        shrunken: Each size that was changed.
    """

    a: ir.Model
    b: ir.Model
    shrunken: tuple[Shrunken, ...]


def shrink(a: Skeleton, b: Skeleton, seed: int, most: int) -> Pair:
    """Return copies of two models with smaller weights, which are equal if the models are.

    A size is changed only if no operator of either model depends on it, and then everywhere in
    both: tables that fed token ids index get fewer rows, products fewer columns. What reaches a
    Reshape, an Attention, or any operator that is not known to be free of sizes stays. The weights
    are drawn anew, the same in both models, which therefore must have the same ones
    (`check_weights`).

    Args:
        a: Model A.
        b: Model B.
        seed: Seed of the weights.
        most: Bytes that the weights of one copy may take.

    Raises:
        CannotShrink: If the copies would still be too large.
        KvtoolError: If a weight that keeps its values cannot be read.
    """
    shared = dict.fromkeys(_weights(a, b))
    tokens = _tokens(a) & _tokens(b)
    one, other = shapes_of(a, shared.keys(), tokens), shapes_of(b, shared.keys(), tokens)
    _tie(a, b, one, other, shared)
    _keep_constants(a, b, one, other)
    chosen = _choice(one[name] or [] for name in shared)
    shrunken = [Shrunken("widths", size.number or 0, new) for size, new in chosen.items()]
    return Pair(
        _copy(a, one, chosen, shared, seed, most),
        _copy(b, other, chosen, shared, seed, most),
        tuple(shrunken),
    )


def check_weights(a: Skeleton, b: Skeleton) -> None:
    """Check that two models have the same weights, so that both may get others.

    Nobody knows whether a weight of one model alone was made from others. Weights that lie at one
    place in one file are not read.

    Raises:
        CannotShrink: If one of them has a weight that the other has not, or with other values.
        KvtoolError: If a weight that has to be read cannot be.
    """
    seen: set[str] = set()
    for one, other in ((a, b), (b, a)):
        for name in _own_weights(one):
            if name in seen:
                continue
            seen.add(name)
            counterpart = other.weights.get(name)
            if counterpart is None:
                raise CannotShrink(f"weight `{name}` of {one.name} is not in {other.name}")
            if not same_values(one.weights[name], counterpart):
                raise CannotShrink(f"weight `{name}` differs between {one.name} and {other.name}")


def _own_weights(model: Skeleton) -> Iterator[str]:
    for name, tensor in model.weights.items():
        if name in model.bare and tensor.dtype in WEIGHT_TYPES:
            yield name


def _weights(a: Skeleton, b: Skeleton) -> Iterator[str]:
    yield from _own_weights(a)
    yield from _own_weights(b)


def _tokens(model: Skeleton) -> frozenset[str]:
    """Return the inputs that hold token ids, so that the tables which they index may be shorter."""
    try:
        known = plan(ir.from_proto(model.message))
    except CannotDraw:
        return frozenset()
    return frozenset(spec.name for spec in known.with_role("token_ids"))


def _tie(a: Skeleton, b: Skeleton, one: Shapes, other: Shapes, shared: Mapping[str, None]) -> None:
    """Let weights, inputs and outputs of one name have one shape in both models."""
    names = [*shared]
    for message in (a.message, b.message):
        names += [value.name for value in (*message.graph.input, *message.graph.output)]
    for name in dict.fromkeys(names):
        if name in one and name in other:
            unify(one[name], other[name])
        else:
            pin(one.get(name), other.get(name))


def _keep_constants(a: Skeleton, b: Skeleton, one: Shapes, other: Shapes) -> None:
    """Keep a size from which one model computed a number that the other does not have.

    The mean of 4096 columns may be written as a sum times 1/4096.
    """
    numbers = [Counter(_numbers(model.message.graph.node)) for model in (a, b)]
    numbers = [
        count + Counter(_scalars(m.message)) for count, m in zip(numbers, (a, b), strict=True)
    ]
    differing = (numbers[0] - numbers[1]).keys() | (numbers[1] - numbers[0]).keys()
    for shapes in (one, other):
        for shape in shapes.values():
            for size in shape or ():
                number = size.root().number
                if number is not None and number > SMALL and _stems(number, differing):
                    size.root().is_pinned = True


def _stems(size: int, numbers: Iterable[float]) -> bool:
    made = (size, 1 / size, math.sqrt(size), 1 / math.sqrt(size))
    return any(math.isclose(n, m, rel_tol=1e-3) for n in numbers for m in made)


def _numbers(nodes: Iterable[onnx.NodeProto]) -> Iterator[float]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:
                yield attribute.f
            elif attribute.type == onnx.AttributeProto.TENSOR:
                yield from _scalar(attribute.t)


def _scalars(message: onnx.ModelProto) -> Iterator[float]:
    for tensor in message.graph.initializer:
        yield from _scalar(tensor)


def _scalar(tensor: onnx.TensorProto) -> Iterator[float]:
    is_float = tensor.data_type in WEIGHT_TYPES
    if is_float and math.prod(tensor.dims) == 1 and not tensor.external_data:
        yield float(numpy_helper.to_array(tensor).reshape(-1)[0])


def _choice(shapes: Iterable[Iterable[Size]]) -> dict[Size, int]:
    """Return a new size for each class that may have one, every class another."""
    fresh = itertools.count(_FIRST, _STEP)
    chosen: dict[Size, int] = {}
    for shape in shapes:
        for size in shape:
            root = size.root()
            if root in chosen or root.is_pinned or root.number is None:
                continue
            if root.number > SMALL and (new := next(fresh)) < root.number:
                chosen[root] = new
    return chosen


def _copy(
    model: Skeleton,
    shapes: Shapes,
    chosen: dict[Size, int],
    shared: Mapping[str, None],
    seed: int,
    most: int,
) -> ir.Model:
    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    sizes = {
        tensor.name: [_new(size, chosen) for size in shapes[tensor.name] or ()]
        for tensor in message.graph.initializer
    }
    total = sum(_bytes(model.weights[name], sizes[name]) for name in model.bare)
    if total > most:
        raise CannotShrink(
            f"a copy with smaller weights would still take {binary_bytes(total)}, "
            f"more than {binary_bytes(most)}",
            needed=total,
        )
    for tensor in message.graph.initializer:
        if tensor.name in model.bare:
            real = model.weights[tensor.name]
            is_drawn = tensor.name in shared and (
                sizes[tensor.name] != list(tensor.dims) or tensor_bytes(real) > _READ
            )
            values = (
                _drawn(real, sizes[tensor.name], tensor.name, seed) if is_drawn else array(real)
            )
            filled = ir.tensor(values, dtype=real.dtype, name=tensor.name)
            tensor.CopyFrom(ir.serde.serialize_tensor(filled))
    for value in (*message.graph.input, *message.graph.output):
        shape = shapes.get(value.name)
        dims = value.type.tensor_type.shape.dim
        if shape is not None and len(shape) == len(dims):
            for dim, size in zip(dims, shape, strict=True):
                if size.root() in chosen and dim.HasField("dim_value"):
                    dim.dim_value = chosen[size.root()]
    return ir.from_proto(message)


def _new(size: Size, chosen: dict[Size, int]) -> int:
    number = size.root().number
    assert number is not None, "the dims of a weight are numbers"
    return chosen.get(size.root(), number)


def _bytes(tensor: ir.TensorProtocol, dims: list[int]) -> int:
    return math.prod(dims) * int(tensor.dtype.bitwidth) // 8


def _drawn(tensor: ir.TensorProtocol, dims: list[int], name: str, seed: int) -> np.ndarray:
    """Draw values for a weight by its name: small ones, so that nothing overflows."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if tensor.dtype.is_integer():
        low, high = int(tensor.dtype.min), int(tensor.dtype.max)
        return rng.integers(low, high, dims, endpoint=True).astype(tensor.dtype.numpy())
    # Products keep the scale of their operand; a vector scales or shifts.
    values = rng.standard_normal(dims) / math.sqrt(max(min(dims, default=1), 1))
    if len(dims) < 2:
        values = 1 + 0.1 * rng.standard_normal(dims)
    return values.astype(tensor.dtype.numpy())
