"""Two models made small together, by one choice of sizes and one draw of weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.reporting import Shrunken
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.model_io.stored import ConvertedTensor
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.shrinking.drawn_weights import (
    READ,
    WEIGHT_TYPES,
    Quantised,
    Skeleton,
    drawn,
    hides,
    quantised_of,
)
from onnx_kvtool.verification.shrinking.equal_sizes import Shapes, factor, fixed, pin, unify
from onnx_kvtool.verification.shrinking.shapes import Choice, sizes_of
from onnx_kvtool.verification.shrinking.size_constants import (
    keep_derived_numbers,
    keep_irregular_tables,
    separated,
    shortened,
)
from onnx_kvtool.verification.weights import is_recast, same_values


class CannotShrink(KvtoolError):
    """No copies of the models that mean the same are small enough to be run.

    Attributes:
        needed: Bytes that the weights of a copy would take; 0 if that is not the reason.
    """

    def __init__(self, message: str, *, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


class Pair(NamedTuple):
    """Copies of A and B, and each size that was changed."""

    a: ir.Model
    b: ir.Model
    shrunken: tuple[Shrunken, ...]


def shrink(a: Skeleton, b: Skeleton, seed: int, most: int) -> Pair:
    """Return copies of two models with smaller weights and caches, equal if the models are.

    A size is changed only if kvtool knows how every operator of both models depends on it. Then it
    is changed everywhere, also where it stands as a number: tables that token ids index get fewer
    rows, products fewer columns, attention fewer and smaller heads. Rows of caches stay, and so do
    all sizes that an operator without a rule reads. Both copies get the same new weights, so the
    models must have the same ones (`check_weights`).

    Raises:
        CannotShrink: If the copies would still be too large.
        KvtoolError: If a weight that keeps its values cannot be read.
    """
    a, b = separated(a), separated(b)
    shared = dict.fromkeys((*a.drawable, *b.drawable))
    common = shared.keys() | _common_constants(a, b)
    tokens = _tokens(a) & _tokens(b)
    one, other = (sizes_of(model, common | model.constants.keys(), tokens) for model in (a, b))
    _tie(a, b, one.shapes, other.shapes, shared)
    keep_derived_numbers(a, b, one, other)
    # A size that stays may be a part of one in another table.
    keep_irregular_tables(a, one, common)
    keep_irregular_tables(b, other, common)
    choice = Choice([one.shapes, other.shapes])
    models = (a, one), (b, other)
    dims = [
        {t.name: [*map(choice.of, sizes.shapes[t.name] or ())] for t in m.message.graph.initializer}
        for m, sizes in models
    ]
    # What scales something in one model scales it in the other, whatever the operators.
    of_a, of_b = (quantised_of(m.message, d) for m, d in zip((a, b), dims, strict=True))
    quantised = Quantised(of_a.values | of_b.values, {**of_b.scales, **of_a.scales})
    draw = _Draw(seed, quantised, _forms(a, b, dims), shared)
    copies = []
    for (model, sizes), shapes in zip(models, dims, strict=True):
        bits = (math.prod(shapes[n]) * int(model.weights[n].dtype.bitwidth) for n in model.bare)
        if (total := sum(count // 8 for count in bits)) > most:
            raise CannotShrink(
                f"a copy with smaller weights would still take {binary_bytes(total)}, "
                f"more than {binary_bytes(most)}",
                needed=total,
            )
        message = model.copied()
        for tensor in message.graph.initializer:
            name = tensor.name
            if name in model.bare:
                filled = draw.weight(model.weights[name], shapes[name], name)
                tensor.CopyFrom(ir.serde.serialize_tensor(filled))
            elif shapes[name] != list(tensor.dims):
                tensor.CopyFrom(shortened(tensor, sizes.shapes[name] or [], choice))
        choice.write(message, sizes)
        copies.append(ir.from_proto(message))
    return Pair(copies[0], copies[1], choice.shrunken())


def check_weights(a: Skeleton, b: Skeleton) -> None:
    """Check that two models have the same weights, so that both may get others.

    Nobody knows whether a weight of one model alone was made from others. Weights that lie at one
    place in one file are not read.

    Raises:
        CannotShrink: If one of them has a weight that the other has not, or with other values.
        KvtoolError: If a weight that has to be read cannot be.
    """
    of_a, of_b = a.drawable, b.drawable
    for name in {**of_a, **of_b}:
        one, other = (a, b) if name in of_a else (b, a)
        counterpart = other.weights.get(name)
        if counterpart is None:
            raise CannotShrink(f"weight `{name}` of {one.name} is not in {other.name}")
        if not same_values(one.weights[name], counterpart):
            raise CannotShrink(f"weight `{name}` differs between {one.name} and {other.name}")


def _common_constants(a: Skeleton, b: Skeleton) -> set[str]:
    """Return the small weights that both models have with the same values."""
    other = b.constants
    return {
        name
        for name, tensor in a.constants.items()
        if tensor.data_type in WEIGHT_TYPES
        and name in other
        and tensor.SerializeToString() == other[name].SerializeToString()
    }


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
        if (counts := _elements_of_byte(a, b, name)) is not None:
            # So many elements of one are as many as those of the other.
            here, there = (fixed(count) for count in counts)
            factor([*(one[name] or []), there], [*(other[name] or []), here])
        elif name in one and name in other:
            unify(one[name], other[name])
        else:
            pin(one.get(name), other.get(name))
    both = set.intersection(*({t.name for t in m.message.graph.initializer} for m in (a, b)))
    for name in both - shared.keys():
        unify(one[name], other[name])


def _elements_of_byte(a: Skeleton, b: Skeleton, name: str) -> tuple[int, int] | None:
    """Return how many elements of a weight a byte holds in each model; None where both are alike.

    They are not where one model reads the bytes of the other as another type or shape.
    """
    one, other = a.weights.get(name), b.weights.get(name)
    if one is None or other is None or not is_recast(one, other):
        return None
    if one.dtype == other.dtype:
        return 1, 1
    return 8 // int(one.dtype.bitwidth), 8 // int(other.dtype.bitwidth)


_Form = tuple[ir.TensorProtocol, list[int]]
"""A weight that the models have in two forms: the one that is drawn, and its shape in the copy."""


def _forms(a: Skeleton, b: Skeleton, dims: list[dict[str, list[int]]]) -> dict[str, _Form]:
    """Return the weights that the models read as two types or shapes, as one that is no byte."""
    found: dict[str, _Form] = {}
    for name, one in a.weights.items():
        if (other := b.weights.get(name)) is not None and is_recast(one, other):
            is_byte = one.dtype == ir.DataType.UINT8
            found[name] = (other, dims[1][name]) if is_byte else (one, dims[0][name])
    return found


class _Draw(NamedTuple):
    """Draws the weights of both copies.

    Attributes:
        seed: Seed of all weights.
        quantised: What is quantised in the models.
        forms: What weights are drawn as that the models read as two types or shapes.
        shared: The weights that both models have; others keep their values.
    """

    seed: int
    quantised: Quantised
    forms: Mapping[str, _Form]
    shared: Mapping[str, None]

    def weight(self, real: ir.TensorProtocol, shape: list[int], name: str) -> ir.TensorProtocol:
        """Return a weight of the copy, in the form that this model has of it."""
        has_other_size = shape != list(real.shape)
        if name not in self.shared or not (has_other_size or tensor_bytes(real) > READ):
            kept = ir.tensor(array(real), dtype=real.dtype, name=name)
            if name not in self.shared or not hides(kept, name, self.quantised):
                return kept
        if isinstance(real, ConvertedTensor):  # the other model has the type that it had
            values = drawn(real.source, shape, name, self.seed, self.quantised)
            return ir.tensor(values.astype(real.dtype.numpy()), dtype=real.dtype, name=name)
        source, dims = self.forms.get(name, (real, shape))
        values = drawn(source, dims, name, self.seed, self.quantised)
        if name not in self.forms:
            return ir.tensor(values, dtype=real.dtype, name=name)
        data = ir.tensor(values, dtype=source.dtype).tobytes()
        if int(real.dtype.bitwidth) < 8:
            held = np.frombuffer(data, np.uint8)
            return ir.PackedTensor(held, real.dtype, shape=ir.Shape(shape), name=name)
        held = np.frombuffer(data, real.dtype.numpy()).reshape(shape)
        return ir.tensor(held, dtype=real.dtype, name=name)
