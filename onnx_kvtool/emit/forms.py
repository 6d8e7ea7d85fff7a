"""Forms that many rules emit: selections, shapes, sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal, Replacement
from onnx_kvtool.symbolic.dimensions import Dim, Dims, dim_of, dims_of, fixed_sizes

# Operators whose form depends on the opset, or matters for speed, in the one that is wanted.


_D = ir.DataType

_CHOSEN_AS = {
    _D.INT16: _D.INT32,
    _D.UINT16: _D.INT32,
    _D.UINT64: _D.INT64,
}
"""Element types that onnxruntime's Where lacks, and one that gives each value back."""

_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMax": 18, "ReduceMean": 18, "ReduceMin": 18}
"""First opset where each reduction takes its axes as an input."""


def dtype_of(value: ir.Value) -> ir.DataType:
    """Return the element type of a value, UNDEFINED where it is unknown."""
    return value.dtype or _D.UNDEFINED


def known_type(value: ir.Value) -> ir.DataType:
    """Return the element type of a value.

    Raises:
        Refusal: If it is unknown.
    """
    if not value.dtype:
        raise Refusal(
            "unknown-element-type",
            f"the type of `{value.name}` is unknown",
            help="declare it, as `value_info`",
        )
    return value.dtype


def computed_in(dtype: ir.DataType | None) -> ir.DataType:
    """Return the type that rules compute in: float64 for itself, else float32."""
    return _D.DOUBLE if dtype == _D.DOUBLE else _D.FLOAT


def known_dims(value: ir.Value, why: str = "") -> Dims:
    """Return the dimensions of a value, whose rank has to be known.

    Args:
        value: The value.
        why: What depends on the rank, as words in front of "the rank".

    Raises:
        Refusal: If the rank is unknown.
    """
    dims = dims_of(value)
    if dims is None:
        raise Refusal(
            "unknown-rank",
            f"{why}the rank of `{value.name}` is unknown",
            help="declare the shape of the value, as `value_info`",
        )
    return dims


def cast(em: Emitter, value: ir.Value, to: ir.DataType, hint: str | None = None) -> ir.Value:
    """Return `value` in another element type; the value itself where it has that type.

    A Cast to float8e5m2 keeps infinities, which the default would turn into the largest number.
    """
    if value.dtype == to:
        return value
    saturate = {"saturate": 0} if to == _D.FLOAT8E5M2 else {}
    return em.op("Cast", value, attributes={"to": to.value} | saturate, hint=hint)


def where(
    em: Emitter,
    condition: ir.Value,
    yes: ir.Value | float,
    no: ir.Value | float,
    hint: str | None = None,
) -> ir.Value:
    """Return `yes` where `condition` is true, else `no`, in one element type; numbers adopt it.

    Each of the two has the shape of the result or one element (see `one_shape`), as everything has
    that a Where chooses from: MNN 3.6.1 is wrong where one of them is spread over a part of the
    result. Below opset 16 Where takes no bfloat16; float32 holds every one of them. onnxruntime
    chooses from no integers of 16 bits and from no uint64, whose bits an int64 holds.
    """
    dtype = next(dtype_of(x) for x in (yes, no) if isinstance(x, ir.Value))
    wide = _CHOSEN_AS.get(dtype, dtype)
    if dtype == _D.BFLOAT16 and em.opset < 16:
        wide = _D.FLOAT
    operands = (cast(em, x, wide) if isinstance(x, ir.Value) else x for x in (yes, no))
    return cast(em, em.op("Where", condition, *operands, hint=hint), dtype)


def _of_two(op_type: str, *, turned: bool = False) -> Callable[[Term, Operand], Term]:
    """Return an operator of Python that adds a node; `turned` if the term is the second operand."""

    def added(term: Term, other: Operand) -> Term:
        pair = (other, term) if turned else (term, other)
        return Term(term.em, term.em.op(op_type, *pair))

    return added


class Term:
    """A value in a formula: `(a + b) * 2` adds an Add and a Mul, and is the output of the Mul.

    Operands are terms, numbers, which become constants as `Emitter.op` says, and values, but for
    the left one: `ir.Value` has operators of its own, which fail. `~`, `&` and `|` are those of
    booleans.

    Attributes:
        em: Where to build.
        value: The value.
    """

    __slots__ = ("em", "value")
    __array_ufunc__ = None  # so that an array in front of a term leaves the operator to it

    def __init__(self, em: Emitter, value: ir.Value) -> None:
        self.em, self.value = em, value

    def op(self, op_type: str, *others: Operand, **keywords: Any) -> Term:
        """Return the output of a node whose first input this is; see `Emitter.op`."""
        return Term(self.em, self.em.op(op_type, self, *others, **keywords))

    def then(self, form: Callable[..., ir.Value], *more: Any, **keywords: Any) -> Term:
        """Return what a form makes of this: `x.then(unsqueeze, [1])`."""
        return Term(self.em, form(self.em, self.value, *more, **keywords))

    def reduce(self, op_type: str, axes: Sequence[int], *, keepdims: bool = True) -> Term:
        """Return a reduction over constant axes; see the function `reduce`."""
        return Term(self.em, reduce(self.em, op_type, self.value, axes, keepdims=keepdims))

    def cast(self, to: ir.DataType) -> Term:
        """Return the same numbers in another element type."""
        return self.then(cast, to)

    def where(self, yes: Term | ir.Value | float, no: Term | ir.Value | float) -> Term:
        """Return `yes` where this holds, else `no`; see the function `where`."""
        yes, no = (x.value if isinstance(x, Term) else x for x in (yes, no))
        return self.then(where, yes, no)

    def __invert__(self) -> Term:
        return self.op("Not")

    def __abs__(self) -> Term:
        return self.op("Abs")

    __add__, __radd__ = _of_two("Add"), _of_two("Add", turned=True)
    __sub__, __rsub__ = _of_two("Sub"), _of_two("Sub", turned=True)
    __mul__, __rmul__ = _of_two("Mul"), _of_two("Mul", turned=True)
    __truediv__, __rtruediv__ = _of_two("Div"), _of_two("Div", turned=True)
    __mod__, __lt__, __gt__ = _of_two("Mod"), _of_two("Less"), _of_two("Greater")
    __and__, __or__ = _of_two("And"), _of_two("Or")


def terms(em: Emitter, *values: ir.Value) -> tuple[Term, ...]:
    """Return values as terms of formulas."""
    return tuple(Term(em, value) for value in values)


def scalar(em: Emitter, value: ir.Value) -> ir.Value:
    """Return one element without dimensions; the value itself where it is declared to have none."""
    return value if dims_of(value) == () else em.op("Reshape", value, [])


def one_number(em: Emitter, value: ir.Value, x: ir.Value) -> ir.Value:
    """Return one number, a scalar where a vector would give an `x` that may have no axis one."""
    return value if dims_of(x) else scalar(em, value)


def halves(em: Emitter, value: ir.Value, axis: int = -1) -> tuple[ir.Value, ...]:
    """Return the two halves of a value along an axis."""
    return em.multi("Split", value, axis=axis, num_outputs=2, count=2)


def one_shape(
    em: Emitter, value: ir.Value, other: ir.Value, dims: Sequence[Dim] | None
) -> ir.Value:
    """Return a value in the common broadcast shape of it and another one; or with one element.

    Args:
        em: Where to build.
        value: What is spread out unless it has one element, or certainly has that shape.
        other: The other one.
        dims: What is known of the shape of `other`.
    """
    own = dims_of(value)
    if own is not None and (all(dim == 1 for dim in own) or covers(own, dims)):
        return value
    em, sizes = em.sharing, fixed_sizes(dims)
    shape = em.op("Shape", other) if sizes is None else em.constant(sizes, "shape")
    spread = em.op("Expand", value, shape)
    spread.shape = ir.Shape(dims) if dims is not None and covers(dims, own) else None
    return spread


def covers(dims: Sequence[Dim] | None, others: Sequence[Dim] | None) -> bool:
    """Return whether a shape is certainly the broadcast of itself and another one."""
    if dims is None or others is None or len(dims) < len(others):
        return False
    last = dims[len(dims) - len(others) :]
    return all(b == 1 or (a == b and a is not None) for a, b in zip(last, others, strict=True))


def unsqueeze(
    em: Emitter, value: ir.Value, axes: Sequence[int], hint: str | None = None
) -> ir.Value:
    """Return `value` with dimensions of size 1 at `axes` of the result."""
    return _along(em, "Unsqueeze", value, axes, hint)


def squeeze(em: Emitter, value: ir.Value, axes: Sequence[int], hint: str | None = None) -> ir.Value:
    """Return `value` without its dimensions at `axes`, which have size 1."""
    return _along(em, "Squeeze", value, axes, hint)


def _along(
    em: Emitter, op_type: str, value: ir.Value, axes: Sequence[int], hint: str | None
) -> ir.Value:
    if em.opset >= 13:
        return em.op(op_type, value, list(axes), hint=hint)
    return em.op(op_type, value, axes=list(axes), hint=hint)


def split(
    em: Emitter, value: ir.Value, sizes: Sequence[int], axis: int = -1
) -> tuple[ir.Value, ...]:
    """Return parts of `value` of these sizes along an axis."""
    if em.opset >= 13:
        return em.multi("Split", value, list(sizes), axis=axis, count=len(sizes))
    return em.multi("Split", value, axis=axis, split=list(sizes), count=len(sizes))


def reduce(
    em: Emitter,
    op_type: str,
    value: ir.Value,
    axes: Sequence[int],
    *,
    keepdims: bool = True,
    hint: str | None = None,
) -> ir.Value:
    """Return a ReduceSum, ReduceMax, ReduceMean or ReduceMin of `value` over constant axes."""
    kept = {} if keepdims else {"keepdims": 0}
    if em.opset >= _AXES_AS_INPUT[op_type]:
        given = em.constant(list(axes), "axes")
        return em.op(op_type, value, given, attributes=kept, hint=hint)
    attributes: dict[str, int | list[int]] = {"axes": list(axes), **kept}
    return em.op(op_type, value, attributes=attributes, hint=hint)


def with_hidden_keys(em: Emitter, mask: ir.Value, count: ir.Value) -> ir.Value:
    """Return a mask (B, H, L, S), bool or a bias, with `count` (1,) hidden keys behind its own."""
    dtype = mask.dtype
    assert dtype is not None
    pads = em.op("Concat", em.constant([0] * 7, "nothing"), count, axis=0)
    lowest = False if dtype == _D.BOOL else -np.inf
    hidden = em.constant(np.array(lowest).astype(dtype.numpy()), "hidden")
    return em.op("Pad", mask, pads, hidden, hint="whole_mask")


def scales_queries(dtype: ir.DataType, scale: float) -> bool:
    """Return whether queries are multiplied by a factor of the scores, as `scaled_queries` says."""
    is_small = dtype == _D.FLOAT and 0 < scale < 1  # so that no product overflows
    return is_small or (dtype == _D.DOUBLE and scale != 1)


def scaled_queries(
    em: Emitter, queries: ir.Value, dtype: ir.DataType, scale: float
) -> tuple[ir.Value, float]:
    """Return the queries and the `scale` for Attention.

    The factor of the scores goes to the queries, which are few, where the element type has digits
    for it: onnxruntime 1.32.0 multiplies one query by many keys without packing them only where
    `scale` is 1, and is done in two thirds to half of the time then. A float64 needs it besides,
    because the attribute is a float32.

    A float16 has no digits for it, and it keeps the factor where it is: behind 4,096 keys of 64
    onnxruntime takes 0.84 of the time with a `scale` of 1, but with a factor on the queries gives
    other bits even where that is a power of two. To leave `scale` out where it is the default
    changes neither time nor bits.
    """
    if not scales_queries(dtype, scale):
        return queries, scale
    factor = em.constant(np.array(scale, dtype.numpy()), "scale")
    return em.op("Mul", queries, factor, hint="scaled"), 1.0


# Sizes of a value as values: constants where they are known, Shape and Gather where not.


def dim_key(dim: Dim, value: ir.Value, axis: int) -> Hashable:
    """Return the key of a size: its number, its name, or its value and axis.

    A name stands for one size in the whole model, so two values that share it share the size.
    """
    return dim if dim is not None else (value, axis)


def size(em: Emitter, value: ir.Value, axis: int, dim: Dim = None) -> ir.Value:
    """Return the size of `value` on `axis`: (), int64; `dim` where more is known of it."""
    dim = dim_of(value, axis) if dim is None else dim
    if isinstance(dim, int):
        return em.constant(dim, "size")

    def build() -> ir.Value:
        shape = em.sharing.op("Shape", value)
        return em.op("Gather", shape, em.constant(axis, "axis"), hint="size")

    return em.once(("size", dim_key(dim, value, axis)), build)


def axis_size(em: Emitter, value: ir.Value, axis: int, hint: str) -> ir.Value:
    """Return the size of an axis, counted from the front, as Shape-15 tells it: (1,), int64."""
    return em.op("Shape", value, start=axis, end=axis + 1, hint=hint)


def positions(
    em: Emitter, value: ir.Value, axis: int, *, place: int, rank: int, dim: Dim = None
) -> ir.Value:
    """Return 0, 1, ... along dimension `place` of a shape of `rank` dimensions, the others 1.

    Args:
        em: Where to build.
        value: Value whose size is read at run time if it is not a number.
        axis: Dimension of `value` that has this size.
        place: Dimension along which the result counts.
        rank: Rank of the result.
        dim: The size, where more is known of it than the shape of `value` says.

    Returns:
        (1, ..., size, ..., 1), int64; empty when the size is 0.
    """
    target, dim = [1] * rank, dim_of(value, axis) if dim is None else dim
    if isinstance(dim, int):
        target[place] = dim
        return em.constant(np.arange(dim, dtype=np.int64).reshape(target), "positions")
    target[place] = -1
    em = em.sharing
    count = em.op("Range", 0, size(em, value, axis, dim), 1)
    return em.op("Reshape", count, target, hint="positions")


def again(
    em: Emitter,
    node: ir.Node,
    inputs: Sequence[ir.Value | None] | None = None,
    *,
    without: Collection[str] = (),
    attributes: Mapping[str, AttributeValue] | None = None,
    op_type: str | None = None,
    outputs: int | None = None,
) -> Replacement:
    """Return a node in another form: attributes are kept as they are, references among them.

    Args:
        em: Where to build.
        node: The node; it is not changed.
        inputs: Inputs of the new form, those of the node when None; absent ones at the end are
            left out.
        without: Attributes that the new form lacks.
        attributes: Attributes that the new form has besides, or with another value.
        op_type: The new operator; that of the node when None.
        outputs: How many outputs the new form has; as many as the node when None. Those that the
            new form lacks must have no reader.
    """
    given = list(node.inputs if inputs is None else inputs)
    while given and given[-1] is None:
        given.pop()
    added = ir.convenience.convert_attributes(attributes or {})
    dropped = {*without, *(attribute.name for attribute in added)}
    kept = [a for a in node.attributes.values() if a.name not in dropped]
    count = len(node.outputs) if outputs is None else outputs
    new = ir.Node(
        "", op_type or node.op_type, given, [*kept, *added], num_outputs=count, version=em.opset
    )
    for old, output in zip(node.outputs, new.outputs, strict=False):
        output.name, output.type = old.name, old.type
    em.adopt(new, new.op_type)
    results: list[ir.Value | None] = [o if o.name else None for o in new.outputs]
    return Replacement((*results, *[None] * (len(node.outputs) - count)))


def outputs_of(node: ir.Node, *values: ir.Value | None) -> Replacement:
    """Return what replaces a node: a value for each of its outputs that has a name."""
    pairs = zip(values, node.outputs, strict=False)
    return Replacement(tuple(value if output.name else None for value, output in pairs))


def channels_first(em: Emitter, x: ir.Value, rank: int) -> ir.Value:
    """Return a picture (N, ..., C) as (N, C, ...)."""
    return em.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(em: Emitter, x: ir.Value, rank: int) -> ir.Value:
    """Return a picture (N, C, ...) as (N, ..., C)."""
    return em.op("Transpose", x, perm=[0, *range(2, rank), 1])


def formal(
    em: Emitter,
    name: str,
    dtype: ir.DataType,
    dims: Iterable[int | ir.SymbolicDim | None] | None = None,
) -> ir.Value:
    """Return an input for a body."""
    fresh = em.scope.names.fresh(f"{em.prefix}/{name}")
    shape = None if dims is None else ir.Shape(dims)
    return ir.Value(name=fresh, type=ir.TensorType(dtype), shape=shape)


def looped(
    em: Emitter,
    rounds: ir.Value | int,
    start: Sequence[ir.Value],
    state: Sequence[ir.Value],
    step: Callable[[ir.Value, ir.Value], Sequence[ir.Value]],
) -> tuple[ir.Value, ...]:
    """Return the final state of a Loop with at most this many iterations.

    `state` are the inputs of its body; `step` builds a round of its number and of its condition,
    which it gives first if that stays.
    """
    turn = formal(em, "turn", _D.INT64, ())
    goes = formal(em, "goes_on", _D.BOOL, ())
    body = em.nested(lambda: step(turn, goes), [turn, goes, *state], hint="rounds")
    return em.multi("Loop", rounds, True, *start, body=body, count=len(body.outputs) - 1)
