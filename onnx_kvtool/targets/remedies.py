"""Other forms of one node, as remedies for limits of releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder, const_tensor
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Replacement
from onnx_kvtool.emit.forms import again, cast, reduce, squeeze, where
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.targets.conditions.sizes import listed, size_of
from onnx_kvtool.targets.conditions.unsupported import quantized_values

# `other-quantized-types`: uint8 instead of int8. The values and their zero point are both 128
# higher, so that their differences, and all results, stay bit-identical. Padding is the zero point.


Remedy = Callable[[NodeView, Emitter], ir.Value | Replacement | None]

_D = ir.DataType
_SHIFT = 128


def unsigned(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit a product of quantized values with uint8 instead of int8; None for other types."""
    inputs = list(view.node.inputs)
    result = view.node.outputs[0].dtype
    for value in quantized_values(view):
        at = value.zero_point
        if value.dtype not in (_D.INT8, _D.UINT8):
            return None
        if value.index is None:
            result = value.dtype
        if value.dtype == _D.UINT8:
            continue
        inputs += [None] * (at + 1 - len(inputs))
        inputs[at] = _raised(em, inputs[at])
        if value.index is not None:
            inputs[value.index] = _raised(em, inputs[value.index])
    same = again(em, view.node, inputs)
    (output,) = same.outputs
    if result == _D.INT8 and output is not None:
        output.type = ir.TensorType(_D.UINT8)
        output = _moved(em, output, -_SHIFT, _D.INT8)
    return Replacement((output,), folds=False)


def _raised(em: Emitter, value: ir.Value | None) -> ir.Value:
    """Return int8 as uint8, 128 higher; an omitted value is a zero point of 0."""
    if value is None:
        return em.constant(np.array(_SHIFT, np.uint8), "zero_point")
    tensor = None if value.is_graph_input() else const_tensor(value)
    if tensor is None:
        return _moved(em, value, _SHIFT, _D.UINT8)

    def build() -> ir.TensorProtocol:
        def shifted() -> ir.TensorProtocol:
            return ir.Tensor((tensor.numpy().astype(np.int16) + _SHIFT).astype(np.uint8))

        return ir.LazyTensor(
            shifted, dtype=_D.UINT8, shape=ir.Shape(tensor.shape.numpy()), name=value.name
        )

    return em.weight(("unsigned", value), build, f"{value.name}/unsigned")


def _moved(em: Emitter, value: ir.Value, by: int, dtype: ir.DataType) -> ir.Value:
    wide = cast(em, value, _D.INT32)
    return cast(em, em.op("Add", wide, by, hint="shifted"), dtype)


# All results stay bit-identical, but for the rounding of `shifted`.


_CARRIERS = {
    _D.BOOL: _D.INT32,
    _D.INT8: _D.INT32,
    _D.UINT8: _D.INT32,
    _D.INT16: _D.INT32,
    _D.UINT16: _D.INT32,
    _D.BFLOAT16: _D.FLOAT,
}
"""Types that some runtimes cannot multiply, and a type that represents all of their values."""


def written_to_copy(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit a ScatterND that writes into its own copy of the data.

    With a reduction, or with a single index, the indices become a matrix (N, K).
    """
    data, indices, updates = view.operands("data", "indices", "updates")
    copied, dims = _copy(em, data, view.node), dims_of(indices)
    if copied is None:
        return None
    reduces = view.string("reduction", "none") != "none"
    if (reduces or (dims is not None and len(dims) == 1)) and (dims is None or len(dims) != 2):
        whole = dims_of(data)
        if dims is None or whole is None or not isinstance(dims[-1], int):
            return None
        left = len(whole) - dims[-1]  # axes of each written part
        indices = em.op("Reshape", indices, [-1, dims[-1]])
        indices.shape = ir.Shape([None, dims[-1]])
        shape = _part(em, indices, 0, 1)
        if left:
            part = _part(em, data, dims[-1], len(whole))
            shape = em.op("Concat", shape, part, axis=0)
        updates = em.op("Reshape", updates, shape)
    return _again(view, em, {0: copied, 1: indices, 2: updates})


def _part(em: Emitter, value: ir.Value, start: int, end: int) -> ir.Value:
    """Return the sizes of some axes: (end - start,)."""
    return em.op("Slice", em.op("Shape", value), [start], [end])


def _copy(em: Emitter, data: ir.Value, owner: ir.Node) -> ir.Value | None:
    """Return a copy of a value for one node.

    A product with 1 is exact, also for infinities and signed zeros. Each copy has its own tensor
    (1,), because a runtime may merge equal computations.
    """
    if data.dtype is None or data.dtype == _D.STRING:
        return None
    carrier = _CARRIERS.get(data.dtype, data.dtype)

    def one() -> ir.TensorProtocol:
        return ir.Tensor(np.ones(1, carrier.numpy()))

    factor = em.weight(("copy", owner), one, "kvtool/one")
    return cast(em, em.op("Mul", cast(em, data, carrier), factor), data.dtype)


def padded(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit a node with explicit pads; None if they depend on unknown sizes."""
    dims = dims_of(view.node.inputs[0])
    if dims is None:
        return None
    sizes = dims[2:]
    kernel = view.integers("kernel_shape") or (dims_of(view.node.inputs[1]) or ())[2:]
    steps, gaps = (view.integers(name) or [1] * len(sizes) for name in ("strides", "dilations"))
    begins, ends = [], []
    for size, window, step, gap in zip(sizes, kernel, steps, gaps, strict=True):
        if not isinstance(window, int):
            return None
        reach = (window - 1) * gap + 1
        if isinstance(size, int):
            both = max((-(-size // step) - 1) * step + reach - size, 0)
        elif step == 1:
            both = reach - 1
        elif reach == 1:
            both = 0
        else:
            return None
        less = both // 2
        begins.append(less if view.string("auto_pad") == "SAME_UPPER" else both - less)
        ends.append(both - begins[-1])
    written: dict[str, AttributeValue] = {"auto_pad": "NOTSET", "pads": [*begins, *ends]}
    return _again(view, em, {}, written)


def counted_axes(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit Squeeze or Unsqueeze with non-negative axes; None if one is unknown."""
    dims = dims_of(view.node.inputs[0])
    axes = listed(view, "axes", ConstantFolder())
    if dims is None or not axes:
        return None
    rank = len(dims) + (len(axes) if view.node.op_type == "Unsqueeze" else 0)
    counted = sorted(axis % rank for axis in axes)
    if "axes" in view.facts.attributes:
        return _again(view, em, {}, {"axes": counted})
    return _again(view, em, {1: em.constant(counted, "axes")})


def begun_within(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit a Slice that starts within the data where it goes backward; None if that is unknown."""
    dims, folder = dims_of(view.node.inputs[0]), ConstantFolder()
    starts, steps, axes = (listed(view, name, folder) for name in ("starts", "steps", "axes"))
    if dims is None or starts is None or not steps or axes is None:
        return None
    if len({len(starts), len(steps), len(axes or steps)}) > 1:
        return None
    for index, step in enumerate(steps):
        if step >= 0:
            continue
        size = size_of(dims, axes[index] if axes else index)
        if not isinstance(size, int) or size == 0:
            return None
        starts[index] = min(starts[index], size - 1)
    return _again(view, em, {1: em.constant(starts, "starts")})


def recast(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit a node with a Cast of its result to the declared type."""
    (result,), dtype = _again(view, em, {}).outputs, view.node.outputs[0].dtype
    if result is None or dtype is None:
        return None
    return Replacement((em.op("Cast", result, to=dtype.value),), folds=False)


def _as_int32(view: NodeView, em: Emitter) -> Replacement:
    """Emit a node whose indices go through int32, so that they are not symbolic."""
    place = 0 if view.node.op_type == "OneHot" else 1
    short = em.op("Cast", view.node.inputs[place], to=ir.DataType.INT32.value)
    return _again(view, em, {place: em.op("Cast", short, to=ir.DataType.INT64.value)})


def shifted(view: NodeView, em: Emitter) -> ir.Value | None:
    """Emit ReduceLogSumExp with the largest element subtracted; None if the axes are unknown.

    An infinite or NaN maximum is not subtracted, so that the result stays the same.
    """
    data, dims = view.required("data"), dims_of(view.node.inputs[0])
    given = listed(view, "axes", ConstantFolder())
    if data.dtype not in FLOAT_TYPES or not dims or given is None:
        return None
    if not given and view.number("noop_with_empty_axes"):
        return None
    axes = [axis % len(dims) for axis in given] or range(len(dims))

    op = em.op
    most = reduce(em, "ReduceMax", data, axes, hint="most")
    finite = op("Less", op("Abs", most), math.inf, hint="is_finite")
    least = where(em, finite, most, 0, "shift")
    keeps = view.integer("keepdims") != 0
    total = reduce(em, "ReduceSum", op("Exp", op("Sub", data, least)), axes, keepdims=keeps)
    back = least if keeps else squeeze(em, least, axes)
    return op("Add", op("Log", total), back)


def constant_scalar(view: NodeView, em: Emitter) -> Replacement:
    """Emit the scalar that a ConstantOfShape makes."""
    given = view.node.attributes.get("value")
    number = np.zeros((), np.float32) if given is None else given.as_tensor().numpy().reshape(())
    value = em.tensor(ir.Tensor(number, dtype=view.node.outputs[0].dtype), "scalar")
    return Replacement((value,), folds=False)


def _again(
    view: NodeView,
    em: Emitter,
    inputs: Mapping[int, ir.Value],
    written: Mapping[str, AttributeValue] | None = None,
) -> Replacement:
    """Emit a node with some inputs or attributes replaced."""
    given = dict(enumerate(view.node.inputs)) | dict(inputs)
    read = [given.get(index) for index in range(max(given, default=-1) + 1)]
    return replace(again(em, view.node, read, attributes=written), folds=False)


def _set_apart(place: int) -> Remedy:
    """Return what emits a node with an input through an Identity.

    It is no constant any more, and a runtime's pattern is broken.
    """

    def emit(view: NodeView, em: Emitter) -> Replacement:
        return _again(view, em, {place: em.op("Identity", view.node.inputs[place])})

    return emit


def _fill_shape(view: NodeView, em: Emitter) -> ir.Value | None:
    """Emit an empty Constant as a ConstantOfShape; None if it is not empty or contains strings."""
    tensor = const_tensor(view.node.outputs[0])
    if tensor is None or tensor.size or tensor.dtype == ir.DataType.STRING:
        return None
    zero = ir.Tensor(np.zeros(1, tensor.dtype.numpy()), dtype=tensor.dtype)
    return em.op("ConstantOfShape", tensor.shape.numpy(), value=zero)


def _with_value(view: NodeView, em: Emitter) -> ir.Value:
    """Emit a ConstantOfShape with its default value, a zero of float32."""
    zero = {"value": ir.Tensor(np.zeros(1, np.float32))}
    return em.op("ConstantOfShape", view.node.inputs[0], attributes=zero)


def _with_bias(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit a LayerNormalization with a bias of -0.0, which changes no sum."""
    scale, dims = view.node.inputs[1], dims_of(view.node.inputs[1])
    if scale is None or scale.dtype is None:
        return None
    zero = np.array(-0.0, scale.dtype.numpy())
    if dims is not None and all(isinstance(dim, int) for dim in dims):
        bias = em.constant(np.full([int(dim or 0) for dim in dims], zero), "bias")
    else:
        value = ir.Tensor(zero.reshape(1))
        bias = em.op("ConstantOfShape", em.op("Shape", scale), value=value)
    return _again(view, em, {2: bias})


def _as_reshape(view: NodeView, em: Emitter) -> ir.Value | None:
    """Emit a Flatten as a Reshape to -1 and a known size, or the first one; None if unknown."""
    data, dims = view.node.inputs[0], dims_of(view.node.inputs[0])
    if data is None or dims is None:
        return None
    axis = view.integer("axis")
    axis += len(dims) if axis < 0 else 0
    before, behind = dims[:axis], dims[axis:]
    rows, columns = (
        math.prod(d if isinstance(d, int) else 0 for d in side) for side in (before, behind)
    )
    if columns:
        shape = [-1, columns]
    elif rows:
        shape = [rows, -1]
    elif len(before) == 1:
        shape = [0, -1]
    else:
        return None
    return em.op("Reshape", data, shape)


def _from_the_front(view: NodeView, em: Emitter) -> Replacement | None:
    """Emit GatherND or ScatterND with non-negative indices; None if their length is unknown."""
    data, indices = view.operands("data", "indices")
    dims, length = dims_of(data), (dims_of(indices) or (None,))[-1]
    batch = view.number("batch_dims")
    if not isinstance(length, int):
        return None
    numbers = [dim for dim in (dims or ())[batch : batch + length] if isinstance(dim, int)]
    if len(numbers) == length:
        sizes = em.constant(numbers, "sizes")
    else:
        begin, end = em.constant([batch], "begin"), em.constant([batch + length], "end")
        sizes = em.op("Slice", em.op("Shape", data), begin, end)
    below = em.op("Less", indices, 0)
    turned = em.op("Add", indices, sizes)
    counted = where(em, below, turned, indices, hint="from_the_front")
    return again(em, view.node, [data, counted, *view.node.inputs[2:]])


REMEDIES: Mapping[str, tuple[str, Remedy]] = {
    "backward": ("starts", begun_within),
    "absent-bias": ("with_bias", _with_bias),
    "after-operator": ("set_apart", _set_apart(0)),
    "constant-indices": ("set_apart", _set_apart(1)),
    "in-place": ("copy", written_to_copy),
    "several-unknown-sizes": ("reshape", _as_reshape),
    "narrow-range": ("recast", recast),
    "negative-axes": ("axes", counted_axes),
    "negative-indices": ("from_the_front", _from_the_front),
    "no-value": ("with_value", _with_value),
    "no-elements": ("fill_shape", _fill_shape),
    "other-quantized-types": ("unsigned", unsigned),
    "overflowing": ("shifted", shifted),
    "promoted": ("recast", recast),
    "same-padding": ("pads", padded),
    "scalar": ("constant", constant_scalar),
    "sizes-as-indices": ("int32", _as_int32),
}
"""By condition: the name of the remedy in reports, and the function that emits it, or None."""
