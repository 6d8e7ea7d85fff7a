"""Other forms of one node, for limits of releases that have a remedy of their own."""

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
from onnx_kvtool.targets.conditions.forms import numbers
from onnx_kvtool.targets.conditions.operators import codes_of

# Products of signed codes as those of unsigned ones, for releases without a kernel for the first.
#
# The remedy of `other-code-types`. What counts is how far a code is from its zero point, and that
# both are 128 higher changes nothing: every result keeps its bits, padding is the zero point.


_D = ir.DataType
_SHIFT = 128


def unsigned(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a product of quantized values with uint8 instead of int8; None for other types."""
    inputs = list(node.inputs)
    result = node.outputs[0].dtype
    for codes in codes_of(node, opset):
        if codes.dtype not in (_D.INT8, _D.UINT8):
            return None
        if codes.index is None:
            result = codes.dtype
        if codes.dtype == _D.UINT8:
            continue
        inputs += [None] * (codes.at + 1 - len(inputs))
        inputs[codes.at] = _raised(em, inputs[codes.at])
        if codes.index is not None:
            inputs[codes.index] = _raised(em, inputs[codes.index])
    same = again(em, node, inputs)
    (output,) = same.outputs
    if result == _D.INT8 and output is not None:
        output.type = ir.TensorType(_D.UINT8)
        output = _moved(em, output, -_SHIFT, _D.INT8)
    return Replacement((output,), folds=False)


def _raised(em: Emitter, value: ir.Value | None) -> ir.Value:
    """Return int8 as uint8, 128 higher; what is left out is a zero point of 0."""
    if value is None:
        return em.constant(np.array(_SHIFT, np.uint8), "zero_point")
    tensor = None if value.is_graph_input() else const_tensor(value)
    if tensor is None:
        return _moved(em, value, _SHIFT, _D.UINT8)

    def build() -> ir.TensorProtocol:
        def codes() -> ir.TensorProtocol:
            return ir.Tensor((tensor.numpy().astype(np.int16) + _SHIFT).astype(np.uint8))

        return ir.LazyTensor(
            codes, dtype=_D.UINT8, shape=ir.Shape(tensor.shape.numpy()), name=value.name
        )

    return em.weight(("unsigned", value), build, f"{value.name}/unsigned")


def _moved(em: Emitter, value: ir.Value, by: int, dtype: ir.DataType) -> ir.Value:
    wide = cast(em, value, _D.INT32)
    return cast(em, em.op("Add", wide, by, hint="shifted"), dtype)


# Forms of one node for releases that spoil the one it has.
#
# No result changes in any bit, but for the rounding of `shifted`. They are remedies of conditions
# in `analysis/form_conditions.py`.


_CARRIERS = {
    _D.BOOL: _D.INT32,
    _D.INT8: _D.INT32,
    _D.UINT8: _D.INT32,
    _D.INT16: _D.INT32,
    _D.UINT16: _D.INT32,
    _D.BFLOAT16: _D.FLOAT,
}
"""Types without a Mul in every runtime, and one that holds all of their values."""


def set_indices_apart(node: ir.Node, em: Emitter, opset: int) -> Replacement:
    """Emit a Gather again, behind an Identity of its indices, which are then no constant."""
    return _again(node, em, {1: em.op("Identity", node.inputs[1])})


def written_to_copy(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a ScatterND that writes into a copy of its data, which nobody else reads.

    One with a reduction, or of a single index, names its places in a matrix, (N, K), one by one.
    """
    view = NodeView(node, opset)
    data, indices, updates = view.operands("data", "indices", "updates")
    copied, dims = _copy(em, data, node), dims_of(indices)
    if copied is None:
        return None
    reduces = "reduction" in view.facts.attributes and view.string("reduction") != "none"
    if (reduces or (dims is not None and len(dims) == 1)) and (dims is None or len(dims) != 2):
        whole = dims_of(data)
        if dims is None or whole is None or not isinstance(dims[-1], int):
            return None
        left = len(whole) - dims[-1]  # axes of each part that is written
        indices = em.op("Reshape", indices, [-1, dims[-1]])
        indices.shape = ir.Shape([None, dims[-1]])
        shape = _part(em, indices, 0, 1)
        if left:
            part = _part(em, data, dims[-1], len(whole))
            shape = em.op("Concat", shape, part, axis=0)
        updates = em.op("Reshape", updates, shape)
    return _again(node, em, {0: copied, 1: indices, 2: updates})


def _part(em: Emitter, value: ir.Value, start: int, end: int) -> ir.Value:
    """Return the sizes of some axes: (end - start,)."""
    return em.op("Slice", em.op("Shape", value), [start], [end])


def _copy(em: Emitter, data: ir.Value, owner: ir.Node) -> ir.Value | None:
    """Return what holds the same numbers, computed for one node alone.

    Times 1 is exact, for infinities and zeros with their sign as well. The 1 is a tensor of its
    own, (1,): a runtime that takes equal computations for one would take equal copies for one.
    """
    if data.dtype is None or data.dtype == _D.STRING:
        return None
    carrier = _CARRIERS.get(data.dtype, data.dtype)

    def one() -> ir.TensorProtocol:
        return ir.Tensor(np.ones(1, carrier.numpy()))

    factor = em.weight(("copy", owner), one, "kvtool/one")
    return cast(em, em.op("Mul", cast(em, data, carrier), factor), data.dtype)


def padded(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a node whose pads are written out; None where they depend on sizes that are unknown."""
    view = NodeView(node, opset)
    dims = dims_of(node.inputs[0])
    if dims is None:
        return None
    sizes = dims[2:]
    kernel = numbers(view.attribute("kernel_shape")) or (dims_of(node.inputs[1]) or ())[2:]
    steps = numbers(view.attribute("strides")) or (1,) * len(sizes)
    has_gaps = "dilations" in view.facts.attributes
    gaps = (numbers(view.attribute("dilations")) if has_gaps else ()) or (1,) * len(sizes)
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
    return _again(node, em, {}, written)


def counted_axes(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit Squeeze or Unsqueeze with axes counted from the front; None where one is unknown."""
    view = NodeView(node, opset)
    dims, as_input = dims_of(node.inputs[0]), "axes" not in view.facts.attributes
    given = view.input("axes") if as_input else None
    axes = (
        ConstantFolder().integers(given) if as_input else np.array(view.attribute("axes"), np.int64)
    )
    if dims is None or axes is None:
        return None
    rank = len(dims) + (axes.size if node.op_type == "Unsqueeze" else 0)
    counted = sorted(int(axis) % rank for axis in axes.ravel())
    if as_input:
        return _again(node, em, {1: em.constant(counted, "axes")})
    return _again(node, em, {}, {"axes": counted})


def begun_within(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a Slice whose starts are elements where it goes backward; None where one is unknown."""
    view, dims, folder = NodeView(node, opset), dims_of(node.inputs[0]), ConstantFolder()
    starts, steps = (folder.integers(view.input(name)) for name in ("starts", "steps"))
    given = view.input("axes")
    axes = folder.integers(given) if given is not None or starts is None else np.arange(starts.size)
    if dims is None or starts is None or steps is None or axes is None:
        return None
    counted = starts.tolist()
    for index in np.flatnonzero(steps < 0):
        size = dims[int(axes[index])]
        if not isinstance(size, int) or size == 0:
            return None
        counted[index] = min(counted[index], size - 1)
    return _again(node, em, {1: em.constant(counted, "starts")})


def recast(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a node with a Cast behind it, to the type that its result has anyway."""
    (result,), dtype = _again(node, em, {}).outputs, node.outputs[0].dtype
    if result is None or dtype is None:
        return None
    return Replacement((em.op("Cast", result, to=dtype.value),), folds=False)


def _as_int32(node: ir.Node, em: Emitter, opset: int) -> Replacement:
    """Emit a node whose indices go through int32, which are numbers once it runs."""
    place = 0 if node.op_type == "OneHot" else 1
    short = em.op("Cast", node.inputs[place], to=ir.DataType.INT32.value)
    return _again(node, em, {place: em.op("Cast", short, to=ir.DataType.INT64.value)})


def shifted(node: ir.Node, em: Emitter, opset: int) -> ir.Value | None:
    """Emit ReduceLogSumExp of floats less their largest; None where the axes are unknown.

    What is infinite or no number is not taken off, so that the result is what it was.
    """
    view = NodeView(node, opset)
    data, dims = view.required("data"), dims_of(node.inputs[0])
    if data.dtype not in FLOAT_TYPES or dims is None:
        return None
    axes = _axes_of(view, len(dims))
    if axes is None:
        return None

    op = em.op
    most = reduce(em, "ReduceMax", data, axes, hint="most")
    finite = op("Less", op("Abs", most), math.inf, hint="is_finite")
    least = where(em, finite, most, 0, "shift")
    keeps = view.integer("keepdims") != 0
    total = reduce(em, "ReduceSum", op("Exp", op("Sub", data, least)), axes, keepdims=keeps)
    back = least if keeps else squeeze(em, least, axes)
    return op("Add", op("Log", total), back)


def _axes_of(view: NodeView, rank: int) -> tuple[int, ...] | None:
    """Return the axes of a reduction from the front; None where they are unknown, or are none."""
    if "axes" in view.facts.attributes:
        given = view.attribute("axes")
        axes = given if isinstance(given, tuple) else ()
    else:
        known = ConstantFolder().integers(view.input("axes"))
        if known is None and view.input("axes") is not None:
            return None
        axes = () if known is None else tuple(known.ravel().tolist())
    noop = "noop_with_empty_axes" in view.facts.attributes
    if not axes and noop and view.integer("noop_with_empty_axes"):
        return None
    return tuple(int(axis) % rank for axis in axes) or tuple(range(rank)) or None


def constant_scalar(node: ir.Node, em: Emitter, opset: int) -> Replacement:
    """Emit what ConstantOfShape fills a scalar with."""
    given = node.attributes.get("value")
    number = np.zeros((), np.float32) if given is None else given.as_tensor().numpy().reshape(())
    value = em.tensor(ir.Tensor(number, dtype=node.outputs[0].dtype), "scalar")
    return Replacement((value,), folds=False)


def _again(
    node: ir.Node,
    em: Emitter,
    inputs: Mapping[int, ir.Value],
    written: Mapping[str, AttributeValue] | None = None,
) -> Replacement:
    """Emit a node again that reads other values in the place of some, or has other attributes."""
    given = dict(enumerate(node.inputs)) | dict(inputs)
    read = [given.get(index) for index in range(max(given, default=-1) + 1)]
    return replace(again(em, node, read, attributes=written), folds=False)


# Other forms of one node, for limits of releases that have a remedy of their own.


def _set_apart(node: ir.Node, em: Emitter, opset: int) -> Replacement:
    """Emit a node again, behind an Identity of what it reads first.

    A runtime that looks for a pattern of nodes then does not find it, and no result changes.
    """
    return again(em, node, [em.op("Identity", node.inputs[0]), *node.inputs[1:]])


def _fill_shape(node: ir.Node, em: Emitter, opset: int) -> ir.Value | None:
    """Emit a Constant without elements as a ConstantOfShape; None where it has another form."""
    tensor = const_tensor(node.outputs[0])
    if tensor is None or tensor.size or tensor.dtype == ir.DataType.STRING:
        return None
    zero = ir.Tensor(np.zeros(1, tensor.dtype.numpy()), dtype=tensor.dtype)
    return em.op("ConstantOfShape", tensor.shape.numpy(), value=zero)


def _with_value(node: ir.Node, em: Emitter, opset: int) -> ir.Value:
    """Emit a ConstantOfShape with the zero of float32 that it has for a default."""
    zero = {"value": ir.Tensor(np.zeros(1, np.float32))}
    return em.op("ConstantOfShape", node.inputs[0], attributes=zero)


def _with_bias(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a LayerNormalization with a bias of -0.0, which no sum with it differs from."""
    scale, dims = node.inputs[1], dims_of(node.inputs[1])
    if scale is None or scale.dtype is None:
        return None
    zero = np.array(-0.0, scale.dtype.numpy())
    if dims is not None and all(isinstance(dim, int) for dim in dims):
        bias = em.constant(np.full([int(dim or 0) for dim in dims], zero), "bias")
    else:
        value = ir.Tensor(zero.reshape(1))
        bias = em.op("ConstantOfShape", em.op("Shape", scale), value=value)
    return _again(node, em, {2: bias})


def _as_reshape(node: ir.Node, em: Emitter, opset: int) -> ir.Value | None:
    """Emit a Flatten as a Reshape to two sizes; None where neither of them is known.

    One is a number, or the first dimension, and what it leaves is the other one.
    """
    data, dims = node.inputs[0], dims_of(node.inputs[0])
    if data is None or dims is None:
        return None
    axis = NodeView(node, opset).integer("axis")
    axis += len(dims) if axis < 0 else 0
    before, behind = dims[:axis], dims[axis:]
    rows, columns = (
        math.prod(d for d in side if isinstance(d, int))
        if all(isinstance(d, int) for d in side)
        else 0
        for side in (before, behind)
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


def _from_the_front(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit GatherND or ScatterND with indices that count from the front.

    None where it is unknown how many sizes there are to count in.
    """
    view = NodeView(node, opset)
    data, indices = view.operands("data", "indices")
    dims, length = dims_of(data), (dims_of(indices) or (None,))[-1]
    batch = view.integer("batch_dims") if "batch_dims" in view.facts.attributes else 0
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
    return again(em, node, [data, counted, *node.inputs[2:]])


Remedy = Callable[[ir.Node, Emitter, int], ir.Value | Replacement | None]

REMEDIES: Mapping[str, tuple[str, Remedy]] = {
    "backward": ("starts", begun_within),
    "absent-bias": ("with_bias", _with_bias),
    "after-operator": ("set_apart", _set_apart),
    "constant-indices": ("set_apart", set_indices_apart),
    "in-place": ("copy", written_to_copy),
    "several-unknown-sizes": ("reshape", _as_reshape),
    "narrow-range": ("recast", recast),
    "negative-axes": ("axes", counted_axes),
    "negative-indices": ("from_the_front", _from_the_front),
    "no-value": ("with_value", _with_value),
    "no-elements": ("fill_shape", _fill_shape),
    "other-code-types": ("unsigned", unsigned),
    "overflowing": ("shifted", shifted),
    "promoted": ("recast", recast),
    "same-padding": ("pads", padded),
    "scalar": ("constant", constant_scalar),
    "sizes-as-indices": ("int32", _as_int32),
}
"""What the report calls the remedy of a condition, and what emits it: None where it does not do."""
