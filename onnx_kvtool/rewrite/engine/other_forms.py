"""Forms of one node for releases that spoil the one it has.

No result changes in any bit, but for the rounding of `shifted`. They are remedies of conditions in
`analysis/form_conditions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Replacement
from onnx_kvtool.emit.forms import cast, reduce, squeeze, where
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = [
    "begun_within",
    "constant_scalar",
    "counted_axes",
    "padded",
    "recast",
    "set_indices_apart",
    "shifted",
    "written_to_copy",
]

_D = ir.DataType

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
    return _again(node, em, {1: _identity(em, node.inputs[1])})


def written_to_copy(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a ScatterND that writes into a copy of its data, which nobody else reads.

    One with a reduction, or of a single index, names its places in a matrix, (N, K), one by one.
    """
    view = NodeView(node, opset)
    data, indices, updates = (view.required(name) for name in ("data", "indices", "updates"))
    copied, dims = _copy(em, data, node), dims_of(indices)
    if copied is None:
        return None
    reduces = "reduction" in view.facts.attributes and view.string("reduction") != "none"
    if (reduces or (dims is not None and len(dims) == 1)) and (dims is None or len(dims) != 2):
        whole = dims_of(data)
        if dims is None or whole is None or not isinstance(dims[-1], int):
            return None
        left = len(whole) - dims[-1]  # axes of each part that is written
        indices = em.op("Reshape", indices, em.constant([-1, dims[-1]], "matrix"))
        indices.shape = ir.Shape([None, dims[-1]])
        shape = _part(em, indices, 0, 1)
        if left:
            part = _part(em, data, dims[-1], len(whole))
            shape = em.op("Concat", shape, part, attributes={"axis": 0})
        updates = em.op("Reshape", updates, shape, dtype=updates.dtype or _D.UNDEFINED)
    return _again(node, em, {0: copied, 1: indices, 2: updates})


def _part(em: Emitter, value: ir.Value, start: int, end: int) -> ir.Value:
    """Return the sizes of some axes: (end - start,)."""
    return em.op("Slice", em.op("Shape", value), em.constant([start]), em.constant([end]))


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
    return cast(em, em.op("Mul", cast(em, data, carrier), factor, dtype=carrier), data.dtype)


def padded(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a node whose pads are written out; None where they depend on sizes that are unknown."""
    view = NodeView(node, opset)
    dims = dims_of(node.inputs[0])
    if dims is None:
        return None
    sizes = dims[2:]
    kernel = _numbers(view.attribute("kernel_shape")) or (dims_of(node.inputs[1]) or ())[2:]
    steps = _numbers(view.attribute("strides")) or (1,) * len(sizes)
    has_gaps = "dilations" in view.facts.attributes
    gaps = (_numbers(view.attribute("dilations")) if has_gaps else ()) or (1,) * len(sizes)
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


def _numbers(given: object) -> tuple[int, ...]:
    return tuple(int(one) for one in given) if isinstance(given, list | tuple) else ()


def counted_axes(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit Squeeze or Unsqueeze with axes counted from the front; None where one is unknown."""
    view = NodeView(node, opset)
    dims, as_input = dims_of(node.inputs[0]), "axes" not in view.facts.attributes
    given = view.input("axes") if as_input else None
    axes = Folder().integers(given) if as_input else np.array(view.attribute("axes"), np.int64)
    if dims is None or axes is None:
        return None
    rank = len(dims) + (axes.size if node.op_type == "Unsqueeze" else 0)
    counted = sorted(int(axis) % rank for axis in axes.ravel())
    if as_input:
        return _again(node, em, {1: em.constant(counted, "axes")})
    return _again(node, em, {}, {"axes": counted})


def begun_within(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a Slice whose starts are elements where it goes backward; None where one is unknown."""
    view, dims, folder = NodeView(node, opset), dims_of(node.inputs[0]), Folder()
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
    attributes = {"to": dtype.value}
    return Replacement((em.op("Cast", result, attributes=attributes, dtype=dtype),), folds=False)


def shifted(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit ReduceLogSumExp of floats less their largest; None where the axes are not known.

    What is infinite or no number is not taken off, so that the result is what it was.
    """
    view = NodeView(node, opset)
    data, dims = view.required("data"), dims_of(node.inputs[0])
    if data.dtype not in FLOAT_TYPES or dims is None:
        return None
    axes = _axes_of(view, len(dims))
    if axes is None:
        return None

    def op(op_type: str, *inputs: ir.Value) -> ir.Value:
        return em.op(op_type, *inputs, dtype=data.dtype or _D.UNDEFINED)

    most = reduce(em, "ReduceMax", data, axes, hint="most")
    infinite = em.constant(np.array(np.inf, data.dtype.numpy()), "infinity")
    zero = em.constant(np.array(0, data.dtype.numpy()), "zero")
    finite = em.op("Less", op("Abs", most), infinite, dtype=_D.BOOL, hint="is_finite")
    least = where(em, finite, most, zero, "shift")
    keeps = view.integer("keepdims") != 0
    total = reduce(em, "ReduceSum", op("Exp", op("Sub", data, least)), axes, keepdims=keeps)
    back = least if keeps else squeeze(em, least, axes)
    return Replacement((op("Add", op("Log", total), back),))


def _axes_of(view: NodeView, rank: int) -> tuple[int, ...] | None:
    """Return the axes of a reduction from the front; None where they are not known, or are none."""
    if "axes" in view.facts.attributes:
        given = view.attribute("axes")
        axes = given if isinstance(given, tuple) else ()
    else:
        known = Folder().integers(view.input("axes"))
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


def _identity(em: Emitter, value: ir.Value | None) -> ir.Value:
    dtype = None if value is None else value.dtype
    return em.op("Identity", value, dtype=dtype or _D.UNDEFINED)


def _again(
    node: ir.Node,
    em: Emitter,
    inputs: Mapping[int, ir.Value],
    written: Mapping[str, AttributeValue] | None = None,
) -> Replacement:
    """Emit a node again that reads other values in the place of some, or has other attributes."""
    read = [inputs.get(index, value) for index, value in enumerate(node.inputs)]
    attributes = {name: given.value for name, given in node.attributes.items()} | dict(
        written or {}
    )
    dtypes = [value.dtype or _D.UNDEFINED for value in node.outputs]
    again = em.multi(node.op_type, *read, attributes=attributes, dtypes=dtypes)
    return Replacement(tuple(again), folds=False)
