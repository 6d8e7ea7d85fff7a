"""QuantizeLinear and DequantizeLinear, their blocks and packed values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal
from onnx_kvtool.emit.forms import cast, one_number, positions, unsqueeze
from onnx_kvtool.model_io.external_data import array, reread
from onnx_kvtool.ops.operators import scale_misfit
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.dtypes import CARRIERS, takes
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, fixed_sizes

# How the scales of QuantizeLinear and DequantizeLinear lie over the input, as nodes.


@dataclass(frozen=True, slots=True)
class Layout:
    """One scale for the tensor, for each index of an axis, or for each block along it.

    Blocks that divide the axis get a dimension of their own, (.., blocks, block_size, ..), against
    which a scale of (.., blocks, 1, ..) broadcasts: nothing of the size of the input is made of the
    scale, and runtimes know the form. Where the sizes do not allow that, the scale is repeated for
    each index of its block.

    Attributes:
        axis: The axis from the front; None per tensor.
        block: Elements per block along `axis`; 0 without blocks.
        split: Target of the Reshape that parts the blocks; None where they are not parted.
    """

    em: Emitter
    x: ir.Value
    axis: int | None
    block: int = 0
    split: tuple[int, ...] | None = None

    def grouped(self, x: ir.Value | None = None) -> ir.Value:
        """Return the input, or `x` in its place, in the shape of the computation."""
        given = self.x if x is None else x
        return given if self.split is None else self.em.op("Reshape", given, self.split)

    def restored(self, result: ir.Value) -> ir.Value:
        """Return a result in the shape of the input."""
        if self.split is None or self.axis is None:
            return result
        before, after = self.split[: self.axis], self.split[self.axis + 2 :]
        count = self.split[self.axis] * self.block
        return self.em.op("Reshape", result, [*before, count, *after])

    def spread(self, values: ir.Value) -> ir.Value:
        """Return a scale or a zero point in a shape that broadcasts against `grouped`."""
        if self.axis is None:
            return one_number(self.em, values, self.x)
        if self.split is not None:
            return unsqueeze(self.em, values, [self.axis + 1])
        if self.block:
            index = positions(self.em, self.x, self.axis, place=0, rank=1)
            of_block = self.em.op("Div", index, self.block)
            return self.em.op("Gather", values, of_block, axis=self.axis)
        target = [1] * len(dims_of(self.x) or ())
        target[self.axis] = -1
        return self.em.op("Reshape", values, target)


def layout_of(em: Emitter, view: NodeView, x: ir.Value, scale: ir.Value) -> Layout:
    """Return how the scale of a node lies over its input.

    Raises:
        Refusal: If what is known does not tell, or the scale has another rank or other sizes than
            the specification demands.
    """
    dims, shape = dims_of(x), dims_of(scale)
    if shape is None or (shape and dims is None):
        raise Refusal(
            "unknown-rank",
            f"whether `{scale.name}` is one number or one for each index of the axis is unknown",
            help="declare the shapes of the input and of the scale",
        )
    axis, block = view.integer("axis", 0), view.integer("block_size", 0)
    zero = next((view.input(f.name) for f in view.facts.inputs if "zero" in f.name), None)
    problem = scale_misfit(dims, shape, dims_of(zero), axis, block, (_name(scale), _name(zero)))
    if problem is not None:
        help = problem.help or "check the node in the exporter; `kvtool check` finds every one"
        raise Refusal("scale-shape", problem.text, help=help)
    if (not block and shape in ((), (1,))) or dims is None:
        return Layout(em, x, None)
    axis = counted_axis(axis, len(dims))
    if not block:
        return Layout(em, x, axis)
    return Layout(em, x, axis, block, _parts(dims, axis, block))


def _parts(dims: Sequence[Dim], axis: int, block: int) -> tuple[int, ...] | None:
    """Return the shape that parts the blocks; None where none can say it."""
    size, after = dims[axis], fixed_sizes(dims[axis + 1 :])
    if not isinstance(size, int) or size % block or 0 in dims or after is None:
        return None
    # A zero takes over the size at the same place, which behind the axis is another one; -1 would
    # fail where a size is 0.
    return (*[0] * axis, size // block, block, *after)


def _name(value: ir.Value | None) -> str:
    return "" if value is None else value.name or ""


# QuantizeLinear and DequantizeLinear where the target lacks their form: kept, or in arithmetic.


_D = ir.DataType
_NARROW = {_D.INT8, _D.UINT8, _D.INT16, _D.UINT16, _D.INT4, _D.UINT4}
_FLOAT8 = {_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ}
_FLOATS = {_D.FLOAT, _D.FLOAT16, _D.BFLOAT16}


def lower_quantize_linear_25(view: Rewritten, em: Emitter) -> ir.Value:
    """Keep the operator where only attributes are new, else saturate(Round(x / scale) + zero).

    The quotient is taken in the type of the scale, or in `precision`, and the rest in float32,
    which holds every number that does not saturate. The quotient of two bfloat16 is that of float32
    rounded once more, which is what one rounding gives.

    Refuses element types other than float32, float16, bfloat16 and int32 in, and integers of 4, 8
    and 16 bits and 8-bit floats out; an unknown rank where the scale is per axis or per block.
    """
    x, scale, zero = view.required("x"), view.required("y_scale"), view.input("y_zero_point")
    stored = zero.dtype if zero is not None else _named(view, "output_dtype") or _D.UINT8
    _take(view, em, x.dtype, _FLOATS | {_D.INT32})
    scale_type = _take(view, em, scale.dtype, _FLOATS)
    stored = _take(view, em, stored, _NARROW | _FLOAT8)
    quotient_type = _take(view, em, _named(view, "precision") or scale_type, _FLOATS)
    layout = layout_of(em, view, x, scale)
    if view.context.keep_fused and quotient_type == scale.dtype == x.dtype:
        kept = _kept_quantize(em, view, stored)
        if kept is not None:
            return kept
    computed = _D.FLOAT if quotient_type == _D.BFLOAT16 else quotient_type
    operands = (cast(em, v, quotient_type) for v in (layout.grouped(), scale))
    above, below = (cast(em, v, computed) for v in operands)
    quotient = em.op("Div", above, layout.spread(below))
    quotient = cast(em, cast(em, quotient, quotient_type), _D.FLOAT)
    if stored not in _FLOAT8:
        quotient = em.op("Round", quotient)
    if zero is not None:
        offset = layout.spread(cast(em, zero, _D.FLOAT))
        quotient = em.op("Add", quotient, offset)
    # onnxruntime has no Reshape of the types of 4 bits, nor of the floats of 8.
    if stored in _FLOAT8:
        result = layout.restored(quotient)
        return em.op("Cast", result, to=stored.value, saturate=view.integer("saturate"))
    clipped = em.op("Clip", quotient, int(stored.min), int(stored.max))
    return cast(em, layout.restored(clipped), stored)


def lower_dequantize_linear_25(view: Rewritten, em: Emitter) -> ir.Value:
    """Keep the operator where only attributes are new, else emit `dequantized`.

    Refuses element types other than integers of 4, 8, 16 and 32 bits and 8-bit floats in, and
    float32, float16 and bfloat16 out; an unknown rank where the scale is per axis or per block.
    """
    x, scale, zero = view.required("x"), view.required("x_scale"), view.input("x_zero_point")
    stored = _take(view, em, x.dtype, _NARROW | _FLOAT8 | {_D.INT32})
    layout_of(em, view, x, scale)  # refuses what no form can say
    attributes, to = _kept_attributes(em, view, scale), result_type_of(view)
    if (
        view.context.keep_fused
        and attributes is not None
        and to is not None
        and {to, scale.dtype} <= _FLOATS
        and all(takes("DequantizeLinear", i, d, em.opset) for i, d in enumerate((stored, to)))
    ):
        inputs = (x, cast(em, scale, to), zero)
        return em.op("DequantizeLinear", *inputs, attributes=attributes, dtype=to)
    return dequantized(em, view)


def dequantized(em: Emitter, view: NodeView) -> ir.Value:
    """Return (x - x_zero_point) * x_scale in plain arithmetic.

    The difference is exact: in float32 for what has up to 16 bits, in int32 for int32. "The output
    type also determines the precision of the multiplication": difference and scale are rounded to
    that type, and so is their product, which float32 holds exactly before. `x` may also be of
    float16, for floats of fewer bits that it holds.
    """
    x, scale, zero = view.required("x"), view.required("x_scale"), view.input("x_zero_point")
    scale_type = _take(view, em, scale.dtype, _FLOATS)
    result_type = _take(view, em, result_type_of(view), _FLOATS)
    layout = layout_of(em, view, x, scale)
    exact = _D.INT32 if x.dtype == _D.INT32 and zero is not None else _D.FLOAT
    if x.dtype is not None and x.dtype.is_floating_point() and _bits(x.dtype) <= 8:
        # onnxruntime has no Reshape of these types.
        number = layout.grouped(cast(em, x, exact))
    else:
        number = cast(em, layout.grouped(), exact)
    if zero is not None:
        offset = layout.spread(cast(em, zero, exact))
        number = em.op("Sub", number, offset)
    if _bits(result_type) < _bits(_D.FLOAT) and _bits(x.dtype) > 8:
        number = cast(em, number, result_type)
    if _bits(result_type) < _bits(scale_type):
        scale = cast(em, scale, result_type)
    factor = layout.spread(cast(em, scale, _D.FLOAT))
    product = em.op("Mul", cast(em, number, _D.FLOAT), factor)
    return layout.restored(cast(em, product, result_type))


def result_type_of(view: NodeView) -> ir.DataType | None:
    """Return the element type of what a DequantizeLinear gives; None where it is unknown."""
    return _named(view, "output_dtype") or view.required("x_scale").dtype


def _kept_quantize(em: Emitter, view: NodeView, stored: ir.DataType) -> ir.Value | None:
    """Return the operator in the form of the target; a zero point stands for `output_dtype`."""
    x, scale, zero = view.required("x"), view.required("y_scale"), view.input("y_zero_point")
    attributes = _kept_attributes(em, view, scale)
    if attributes is None or x.dtype is None or not takes("QuantizeLinear", 2, stored, em.opset):
        return None
    if not all(takes("QuantizeLinear", index, x.dtype, em.opset) for index in (0, 1)):
        return None
    if not view.integer("saturate", 1):
        if em.opset < 19:
            return None
        attributes["saturate"] = 0
    if zero is None and stored != _D.UINT8:
        sizes = fixed_sizes(dims_of(scale))
        if sizes is None or math.prod(sizes) > _MOST_ZEROS:
            return None
        zeros = np.zeros(sizes, stored.numpy())
        zero = em.tensor(ir.Tensor(zeros, dtype=stored), "zero_point")
    return em.op("QuantizeLinear", x, scale, zero, attributes=attributes, dtype=stored)


_MOST_ZEROS = 4096
"""Elements of a zero point that is written only to say the type of the result."""


def _kept_attributes(
    em: Emitter, view: NodeView, scale: ir.Value
) -> dict[str, AttributeValue] | None:
    """Return `axis` and `block_size` in the form of the target; None where it has none."""
    facts, dims = op_facts(view.node.op_type, em.opset), dims_of(scale)
    if facts is None or dims is None:
        return None
    attributes: dict[str, AttributeValue] = {}
    if not dims or dims == (1,):
        return attributes
    for name in ("axis", "block_size"):
        given = view.integer(name, 0)
        if name in facts.attributes:
            attributes[name] = given
        elif name == "axis" or given:
            return None
    return attributes


def _bits(dtype: ir.DataType | None) -> int:
    return 0 if dtype is None else int(dtype.bitwidth)


def _named(view: NodeView, attribute: str) -> ir.DataType | None:
    """Return the element type that an attribute names; None for 0 and for an older version."""
    given = view.integer(attribute, 0)
    return _D(given) if given else None


def _take(
    view: NodeView, em: Emitter, dtype: ir.DataType | None, types: set[ir.DataType]
) -> ir.DataType:
    """Return an element type of the node. Raise Refusal if it is none of these, or the target's."""
    op, opset = view.node.op_type, em.opset
    if dtype is None or dtype not in types:
        name = "an unknown type" if dtype is None else dtype.name
        text = f"`{op}` with {name} cannot be written in plain arithmetic at opset {opset}"
        raise Refusal("element-type", text)
    if not takes("Cast", 0, dtype, opset):
        text = f"`{op}` takes {dtype.name}, which opset {opset} does not support"
        raise Refusal("element-type", text)
    return dtype


# Constants of element types that a target lacks: their bytes, and nodes that take these apart.
#
# What the file holds of such a constant is taken over untouched, as bytes: nothing is read, and
# external data stays where it is. A table says what each byte holds, and runtimes that fold
# constants look it up once, when they load the model.


_FEW = 64
"""Elements. So many are written in the type that carries them."""


def as_bytes(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Return a tensor of a type of `CARRIERS` in a form that every opset has.

    A few values are converted to the carrier. Else the result is the stored bytes, uint8, external
    ones unread: of the shape of `tensor` with the last dimension divided by the elements of a byte,
    or (bytes,) where that is no whole number.
    """
    dims = tuple(tensor.shape.numpy())
    per_byte = _per_byte(tensor.dtype)
    if not isinstance(tensor, ir.ExternalTensor) and tensor.size <= _FEW:
        carrier = CARRIERS[tensor.dtype].numpy()
        return ir.Tensor(array(tensor).astype(np.float32).astype(carrier), name=name)
    if dims and dims[-1] % per_byte == 0:
        dims = (*dims[:-1], dims[-1] // per_byte)
    else:
        dims = (-(-int(tensor.size) // per_byte),)
    return reread(tensor, _D.UINT8, dims, name)


def unpacked(em: Emitter, stored: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
    """Return the elements of `tensor`, `stored` by `as_bytes`, in the type that carries them."""
    dtype = CARRIERS[tensor.dtype]
    if stored.dtype == dtype and stored.shape == tensor.shape:
        return stored
    dims = [int(size) for size in tensor.shape.numpy()]
    per_byte = _per_byte(tensor.dtype)

    def build() -> ir.Value:
        # A node, not an initializer, which would look like a weight that the source does not have.
        table = ir.Tensor(_table(tensor.dtype))
        return em.op("Constant", value=table, hint=f"{tensor.dtype.name.lower()}_of_byte")

    table = em.once(("elements of a byte", tensor.dtype), build)
    value = em.op("Gather", table, cast(em, stored, _D.INT32))
    if per_byte == 1:
        return value
    if stored.shape is not None and len(stored.shape) == len(dims) and dims[-1] % per_byte == 0:
        # Sizes that are taken over need not be known, in a copy of other sizes either.
        return em.op("Reshape", value, [0] * (len(dims) - 1) + [-1])
    count = int(tensor.size)
    value = em.op("Reshape", value, [-1])
    if count % per_byte:
        ends = (em.constant([bound], "bound") for bound in (0, count))
        value = em.op("Slice", value, *ends)
    return em.op("Reshape", value, dims)


def _per_byte(dtype: ir.DataType) -> int:
    return 8 // int(dtype.bitwidth)


def _table(dtype: ir.DataType) -> np.ndarray:
    """Return the elements of each byte: (256,), or (256, n) for n elements, the low bits first."""
    carrier, bits = CARRIERS[dtype].numpy(), int(dtype.bitwidth)
    every = np.arange(256, dtype=np.uint8)
    if bits == 8:
        return np.asarray(every.view(dtype.numpy()).astype(np.float32).astype(carrier))
    digits = np.stack([every >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1)
    if dtype == _D.FLOAT4E2M1:
        return np.asarray(digits.view(ml_dtypes.float4_e2m1fn).astype(carrier))
    if dtype in (_D.INT4, _D.INT2):
        half = 1 << bits - 1
        return np.where(digits >= half, digits.astype(np.int16) - 2 * half, digits).astype(carrier)
    return digits.astype(carrier)
