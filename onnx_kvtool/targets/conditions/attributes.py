"""Conditions on forms: attributes, axes, readers, Attention, Loop and If."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnx_kvtool.core.walk import maker, subgraphs
from onnx_kvtool.ops.operators import Attention, TensorScatter
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.symbolic.dimensions import Dim, contradict, dims_of
from onnx_kvtool.targets.conditions.sizes import LONG_WAY, Asked, differ, is_constant, size_of

if TYPE_CHECKING:
    import onnx_ir as ir


def _in_place(asked: Asked) -> bool:
    """Whether a write into the buffer of the data is visible elsewhere, or loses an update.

    The result of a copy for this node is not visible elsewhere. The runtime takes one index after
    the other along the first axis. A single index has no such axis. With a reduction, it keeps one
    update of each place.
    """
    view = asked.view
    data, dims = view.required("data"), dims_of(view.required("indices"))
    reduces = view.string("reduction", "none") != "none"
    if (dims is not None and len(dims) == 1) or (reduces and (dims is None or len(dims) != 2)):
        return True
    return data.is_graph_output() or len(data.uses()) != 1 or not _is_fresh(data)


def _is_fresh(value: ir.Value) -> bool:
    """Return whether a value comes from a write, or from a product with a constant of its own.

    A Cast of such a product counts, too, but not to the same type: a runtime may remove it.
    """
    producer = maker(value, "Cast", "Mul", "ScatterND")
    if producer is None:
        return False
    if producer.op_type == "Cast" and (given := producer.inputs[0]) is not None:
        return (
            given.dtype not in (None, value.dtype) and len(given.uses()) == 1 and _is_fresh(given)
        )
    if producer.op_type == "Mul" and (factor := producer.inputs[1]) is not None:
        return is_constant(factor) and dims_of(factor) == (1,) and len(factor.uses()) == 1
    return producer.op_type == "ScatterND"


def _constant_indices(asked: Asked) -> bool:
    """Whether the second input is a constant with several dimensions, or without elements."""
    indices = asked.node.inputs[1]
    if indices is None:
        return False
    if not (is_constant(indices) or maker(indices, "Constant")):
        return False
    dims = dims_of(indices)
    return dims is None or len(dims) > 1 or dims == (0,)


def _same_padding(asked: Asked) -> bool:
    """Whether `auto_pad` is SAME, and a window has gaps or is smaller than its step."""
    view = asked.view
    if not view.string("auto_pad").startswith("SAME"):
        return False
    if any(step != 1 for step in view.integers("dilations")):
        return True
    strides, filters = view.integers("strides"), dims_of(given_input(asked.node, 1)) or ()
    kernel: Sequence[Dim] = view.integers("kernel_shape") or filters[2:]
    if all(step == 1 for step in strides):
        return False
    return len(kernel) != len(strides) or not all(
        isinstance(size, int) and step <= size for step, size in zip(strides, kernel, strict=True)
    )


def _uneven_split(asked: Asked) -> bool:
    """Whether Split has `num_outputs`, and the outputs may differ in size."""
    view = asked.view
    if not asked.has("num_outputs") or view.input("split") is not None:
        return False
    dims, axis = dims_of(view.required("input")), view.integer("axis")
    size = None if dims is None or not -len(dims) <= axis < len(dims) else dims[axis]
    return not isinstance(size, int) or size % len(asked.node.outputs) != 0


def _negative_axes(asked: Asked) -> bool:
    """Whether there are several axes, and one of them is or may be negative."""
    axes = asked.listed("axes")
    if axes is None:
        dims = dims_of(asked.view.find("axes"))
        return dims is None or dims != (1,)
    return len(axes) > 1 and min(axes) < 0


def _narrow_range(asked: Asked) -> bool:
    """Whether the result is int64, and is read by more than a Cast to int64."""
    output = asked.node.outputs[0]
    if output.dtype is None or output.dtype.name != "INT64":
        return output.dtype is None
    return _is_read_as_other(output, output.dtype)


def _is_read_as_other(output: ir.Value, dtype: ir.DataType) -> bool:
    """Return whether more than a Cast to a type reads a value."""
    return output.is_graph_output() or not all(
        use.node.op_type == "Cast" and use.node.outputs[0].dtype == dtype for use in output.uses()
    )


def _inner_axis(asked: Asked) -> bool:
    """Whether the axis is not certainly the last one."""
    dims = asked.dims
    axis = asked.view.integer("axis")
    return axis != -1 and (dims is None or axis % max(len(dims), 1) != len(dims) - 1)


def _integer_input(asked: Asked) -> bool:
    """Whether the first input has an integer type or an unknown one."""
    dtype = None if asked.node.inputs[0] is None else asked.node.inputs[0].dtype
    return dtype is None or dtype.is_integer()


def _promoted(asked: Asked) -> bool:
    """Whether the second operand is a wider float, and more than a Cast reads the result."""
    base, exponent = (None if value is None else value.dtype for value in asked.node.inputs[:2])
    if base is None or exponent is None:
        return True
    if not exponent.is_floating_point() or exponent.bitwidth <= base.bitwidth:
        return False
    return _is_read_as_other(asked.node.outputs[0], base)


def _backward(asked: Asked) -> bool:
    """Whether a Slice that goes backward may start after the last element."""
    dims, steps = asked.dims, asked.listed("steps")
    if steps is None or asked.has("starts"):
        return steps is None
    starts, axes = asked.listed("starts"), asked.listed("axes")
    if starts is None:
        return any(step < 0 for step in steps)
    for index, (step, start) in enumerate(zip(steps, starts, strict=False)):
        if step >= 0 or start < 0:
            continue
        axis = axes[index] if axes and index < len(axes) else index
        size = None if dims is None or axes is None else size_of(dims, axis)
        if not isinstance(size, int) or start >= size:
            return True
    return False


def _computed_diagonal(asked: Asked) -> bool:
    """Whether the diagonal is computed, or near the limits of int64."""
    k = asked.view.input("k")
    known = asked.folder.integers(k)
    if k is None or known is None:
        return k is not None and not k.is_graph_input()
    return bool((np.abs(known.astype(float)) > _FAR).any())


_FAR = 2.0**62


def _unknown_axis_size(asked: Asked) -> bool:
    """Whether the axis, or a later one that opset 12 includes, has no fixed size."""
    dims, axis = asked.dims, asked.view.integer("axis")
    if not dims:
        return dims is None
    axis %= len(dims)
    return not all(
        isinstance(dim, int) for dim in dims[axis : axis + 1 if asked.view.opset >= 13 else None]
    )


FORM_CONDITIONS = (
    _computed_diagonal,
    _unknown_axis_size,
    _in_place,
    _constant_indices,
    _same_padding,
    _uneven_split,
    _negative_axes,
    _narrow_range,
    _inner_axis,
    _integer_input,
    _promoted,
    _backward,
)
"""Part of `CONDITIONS`."""


def _causal_nonpad_rows(asked: Asked) -> bool:
    view = asked.attention
    return view.nonpad_kv_seqlen is not None and view.is_causal and _length(view.query) != 1


def _causal_single_row(asked: Asked) -> bool:
    view = asked.attention
    if not view.is_causal or view.nonpad_kv_seqlen is not None or view.past_key is not None:
        return False
    queries, keys = _length(view.query), _length(view.key)
    # With as many keys as queries, a single query has the one key that it may see.
    return queries is None or (queries != keys and (queries == 1 or isinstance(queries, str)))


def _masked_softcap(asked: Asked) -> bool:
    view = asked.attention
    return view.softcap != 0 and _hides_keys(view)


def _masked_score_output(asked: Asked) -> bool:
    view = asked.attention
    return (
        "qk_matmul_output" in view.outputs
        and view.integer("qk_matmul_output_mode") in asked.limit.values
        and _hides_keys(view)
    )


def _short_mask(asked: Asked) -> bool:
    """Whether a mask is certainly short: at a mask that turns out to be, the release fails."""
    view = asked.attention
    dims = dims_of(view.attn_mask)
    if view.past_key is not None or not dims:
        return False
    return contradict(dims[-1], _length(view.key))


def _computed_heads(asked: Asked) -> bool:
    """Whether heads are grouped in 4-D, and the shape of an operand may be computed."""
    view = asked.attention
    dims = [dims_of(value) for value in (view.query, view.key)]
    if any(one is not None and len(one) == 3 for one in dims):
        return False  # attributes give the numbers
    query, key = (size_of(one or (), 1) for one in dims)
    if isinstance(query, int) and query == key:
        return False
    before: list[ir.Value | None] = [view.query, view.key, view.value]
    steps = 0
    while before and steps < LONG_WAY:
        value = before.pop()
        producer = None if value is None else value.producer()
        if producer is None:
            continue
        if producer.op_type == "Reshape":
            if asked.folder.integers(producer.inputs[1]) is None:
                return True
        elif producer.op_type not in ("MatMul", "Gemm", "TensorScatter", "ScatterND"):
            before += producer.inputs
        steps += 1
    return bool(before)


def _not_plain_4d(asked: Asked) -> bool:
    view = asked.attention
    if view.past_key is not None or view.past_value is not None or view.softcap != 0:
        return True
    if view.nonpad_kv_seqlen is not None or set(view.outputs) != {"Y"}:
        return True
    operands = [view.query, view.key, view.value]
    if view.attn_mask is not None:
        operands.append(view.attn_mask)
    return any(len(dims_of(value) or ()) != 4 for value in operands)


def _no_kv_cache_update(asked: Asked) -> bool:
    view = TensorScatter(asked.node, asked.view.opset)
    past, update = dims_of(view.past_cache), dims_of(view.update)
    if past is None or update is None or len(past) != 4 or len(update) != 4:
        return True
    return not (
        view.sequence_axis == 2
        and isinstance(past[2], int)
        and view.mode == "linear"
        and view.write_indices is not None
        and view.past_cache.is_graph_input()
        and view.present_cache.is_graph_output()
        and asked.dtype in asked.limit.types
    )


def _hides_keys(view: Attention) -> bool:
    hides = view.is_causal or view.attn_mask is not None or view.nonpad_kv_seqlen is not None
    return hides or max(view.left_window, view.right_window) >= 0


def _length(value: ir.Value) -> Dim:
    """Return L of (B, H, L, D) or (B, L, H * D)."""
    dims = dims_of(value)
    return dims[-2] if dims is not None and len(dims) >= 2 else None


ATTENTION_CONDITIONS = (
    _causal_nonpad_rows,
    _causal_single_row,
    _masked_softcap,
    _masked_score_output,
    _short_mask,
    _computed_heads,
    _not_plain_4d,
    _no_kv_cache_update,
)
"""Part of `CONDITIONS`."""


def different_branches(asked: Asked) -> bool:
    """Whether the branches of an If give shapes that are not certainly equal."""
    branches = [graph.outputs for _, graph in subgraphs(asked.node)]
    if len(branches) != 2:
        return False
    for one, other in zip(*branches, strict=False):
        a, b = dims_of(one), dims_of(other)
        if a is None or b is None:
            continue
        if len(a) != len(b) or any(
            x is None or y is None or differ(x, y) for x, y in zip(a, b, strict=True)
        ):
            return True
    return False


def different_ranks(asked: Asked) -> bool:
    """Whether the branches of an If give values of different ranks."""
    branches = [graph.outputs for _, graph in subgraphs(asked.node)]
    shapes = ([dims_of(value) for value in outputs] for outputs in branches)
    pairs = zip(*shapes, strict=False)
    return any(None not in pair and len({len(dims or ()) for dims in pair}) > 1 for pair in pairs)


def early_scan(asked: Asked) -> bool:
    """Whether a Loop may end early or has an unknown trip count, and its scan outputs are used."""
    carried = len(asked.node.inputs) - 2
    if not any(
        output.uses() or output.is_graph_output() for output in asked.node.outputs[carried:]
    ):
        return False
    bodies = [graph for _, graph in subgraphs(asked.node)]
    is_whole = len(bodies) == 1 and bodies[0].outputs and len(bodies[0].inputs) > 1
    if not is_whole or asked.folder.integers(given_input(asked.node, 0)) is None:
        return True
    (body,) = bodies
    goes_on: ir.Value | None = body.outputs[0]
    while goes_on is not None and (made := goes_on.producer()) is not None:
        if made.op_type != "Identity":
            break
        goes_on = made.inputs[0]
    return goes_on is not body.inputs[1] and asked.folder.integers(goes_on) is None
