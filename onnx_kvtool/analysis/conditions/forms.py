"""Conditions on forms: attributes, axes, readers, Attention, Loop and If."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnx_kvtool.analysis.conditions.sizes import differ, type_of
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.operators import Attention, TensorScatter
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import Dim, contradict, dims_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.targets.release import Limit

__all__ = [
    "ATTENTION_CONDITIONS",
    "FORM_CONDITIONS",
    "open_scan",
    "unlike_branches",
    "unlike_ranks",
]


# Conditions of `targets/runtimes.toml` that ask for attributes, axes, constants and readers.


def _in_place(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether others see what is written into the data, or an update can be lost.

    Nobody else sees the result of the copy that stands before it. Indices are looked at one after
    the other along their first axis: of a single index there is no such axis, and of updates that
    one step combines with the data, one at each place is left.
    """
    view = NodeView(node, opset)
    data, dims = view.required("data"), dims_of(view.required("indices"))
    reduces = "reduction" in view.facts.attributes and view.string("reduction") != "none"
    if (dims is not None and len(dims) == 1) or (reduces and (dims is None or len(dims) != 2)):
        return True
    return data.is_graph_output() or len(data.uses()) != 1 or not _is_fresh(data)


def _is_fresh(value: ir.Value) -> bool:
    """Return whether it is what a write gives, or a product with a constant that none else reads.

    A Cast of such a product is one too; that to its own type may be left out by a runtime.
    """
    producer = value.producer()
    if producer is None or not is_standard(producer):
        return False
    if producer.op_type == "Cast" and (given := producer.inputs[0]) is not None:
        return (
            given.dtype not in (None, value.dtype) and len(given.uses()) == 1 and _is_fresh(given)
        )
    if producer.op_type == "Mul" and (factor := producer.inputs[1]) is not None:
        is_constant = factor.const_value is not None and not factor.is_graph_input()
        return is_constant and dims_of(factor) == (1,) and len(factor.uses()) == 1
    return producer.op_type == "ScatterND"


def _constant_indices(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the second input is a constant of several dimensions, or of no elements."""
    indices = node.inputs[1]
    if indices is None:
        return False
    producer = indices.producer()
    is_constant = producer is not None and producer.op_type == "Constant"
    if not is_constant and (indices.const_value is None or indices.is_graph_input()):
        return False
    dims = dims_of(indices)
    return dims is None or len(dims) > 1 or dims == (0,)


def _same_padding(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether `auto_pad` is SAME, and a window has gaps or is smaller than its step."""
    view = NodeView(node, opset)
    if not view.string("auto_pad").startswith("SAME"):
        return False
    dilations = view.attribute("dilations") if "dilations" in view.facts.attributes else None
    if any(step != 1 for step in _numbers(dilations)):
        return True
    strides = _numbers(view.attribute("strides"))
    kernel: Sequence[Dim] = _numbers(view.attribute("kernel_shape"))
    if not kernel:
        kernel = (dims_of(node.inputs[1]) or ())[2:] if len(node.inputs) > 1 else ()
    if all(step == 1 for step in strides):
        return False
    return len(kernel) != len(strides) or not all(
        isinstance(size, int) and step <= size for step, size in zip(strides, kernel, strict=True)
    )


def _numbers(given: object) -> tuple[int, ...]:
    return tuple(int(one) for one in given) if isinstance(given, list | tuple) else ()


def _uneven(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether Split counts its outputs, and they may be of unequal sizes."""
    view = NodeView(node, opset)
    if "num_outputs" not in view.facts.attributes or view.input("split") is not None:
        return False
    dims, axis = dims_of(view.required("input")), view.integer("axis")
    size = None if dims is None or not -len(dims) <= axis < len(dims) else dims[axis]
    return not isinstance(size, int) or size % len(node.outputs) != 0


def _negative_axes(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether several axes are named, and one of them from the end."""
    view = NodeView(node, opset)
    if "axes" in view.facts.attributes:
        axes = _numbers(view.attribute("axes"))
    else:
        given = view.input("axes")
        known = folder.integers(given)
        if given is not None and known is None:
            dims = dims_of(given)
            return dims is None or dims != (1,)
        axes = () if known is None else tuple(int(axis) for axis in known.ravel())
    return len(axes) > 1 and min(axes) < 0


def _narrow_range(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether it gives int64, and something else than a Cast to it reads it."""
    output = node.outputs[0]
    if output.dtype is None or output.dtype.name != "INT64":
        return output.dtype is None
    return output.is_graph_output() or not all(
        use.node.op_type == "Cast" and use.node.outputs[0].dtype == output.dtype
        for use in output.uses()
    )


def _to_bytes(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the result is of uint8, or of an unknown type."""
    given = node.outputs[0].dtype
    return given is None or given.name == "UINT8"


def _diagonal(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return NodeView(node, opset).integer("k") != 0


def _inner_axis(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the axis may be another one than the last."""
    dims = dims_of(node.inputs[0])
    axis = NodeView(node, opset).integer("axis")
    return axis != -1 and (dims is None or axis % max(len(dims), 1) != len(dims) - 1)


def _of_integers(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the first input is of integers, or of an unknown type."""
    dtype = None if node.inputs[0] is None else node.inputs[0].dtype
    return dtype is None or dtype.is_integer()


def _promoted(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the second operand is of a wider float, and else than a Cast reads the result."""
    base, exponent = (None if value is None else value.dtype for value in node.inputs[:2])
    if base is None or exponent is None:
        return True
    if not exponent.is_floating_point() or exponent.bitwidth <= base.bitwidth:
        return False
    output = node.outputs[0]
    return output.is_graph_output() or not all(
        use.node.op_type == "Cast" and use.node.outputs[0].dtype == base for use in output.uses()
    )


def _no_picture(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the first input has not, or may not have, four dimensions."""
    dims = dims_of(node.inputs[0])
    return dims is None or len(dims) != 4


def _scalar(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the first input, a shape, is known to be that of a scalar."""
    return dims_of(node.inputs[0]) == (0,)


def _backward(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a Slice that goes backward may begin behind the last element."""
    view, dims = NodeView(node, opset), dims_of(node.inputs[0])
    if "starts" in view.facts.attributes or view.input("steps") is None:
        return False
    axes, starts, steps = (view.input(name) for name in ("axes", "starts", "steps"))
    step, start = folder.integers(steps), folder.integers(starts)
    if step is None or start is None:
        return step is None or bool((step < 0).any())
    axis = np.arange(start.size) if axes is None else folder.integers(axes)
    for index in np.flatnonzero(step < 0):
        size = None if dims is None or axis is None else dims[int(axis[index])]
        if start[index] >= 0 and (not isinstance(size, int) or start[index] >= size):
            return True
    return False


def _no_size(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a Reshape is known to give an array without elements by a size of 0."""
    view = NodeView(node, opset)
    if "allowzero" not in view.facts.attributes or not view.integer("allowzero"):
        return False
    sizes = folder.integers(view.input("shape"))
    return sizes is not None and bool((sizes == 0).any())


def _overflowing(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether exponentials of elements may be more than the element type holds: always."""
    return True


def _no_scalar(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether an input that has to be a scalar is known to have a dimension."""
    assert limit.operand is not None
    return bool(dims_of(NodeView(node, opset).input(limit.operand)))


def _computed_diagonal(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the diagonal is computed, or so far off that a row more is no int64."""
    k = NodeView(node, opset).input("k")
    known = folder.integers(k)
    if k is None or known is None:
        return k is not None and not k.is_graph_input()
    return bool((np.abs(known.astype(float)) > _FAR).any())


_FAR = 2.0**62


def _vector(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether one of the first two inputs is known to be a vector."""
    return any(len(dims_of(value) or ()) == 1 for value in node.inputs[:2])


def _open_axis(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the size of the axis, or of those that it stands for, is no number."""
    dims, axis = dims_of(node.inputs[0]), NodeView(node, opset).integer("axis")
    if not dims:
        return dims is None
    axis %= len(dims)
    return not all(isinstance(dim, int) for dim in dims[axis : axis + 1 if opset >= 13 else None])


FORM_CONDITIONS = (
    ("no-scalar", _no_scalar),
    ("computed-diagonal", _computed_diagonal),
    ("vector", _vector),
    ("open-axis", _open_axis),
    ("in-place", _in_place),
    ("constant-indices", _constant_indices),
    ("same-padding", _same_padding),
    ("uneven", _uneven),
    ("negative-axes", _negative_axes),
    ("narrow-range", _narrow_range),
    ("to-bytes", _to_bytes),
    ("diagonal", _diagonal),
    ("inner-axis", _inner_axis),
    ("of-integers", _of_integers),
    ("promoted", _promoted),
    ("no-picture", _no_picture),
    ("scalar", _scalar),
    ("backward", _backward),
    ("no-size", _no_size),
    ("overflowing", _overflowing),
)
"""Lines of `CONDITIONS` in `analysis/conditions.py`."""


# Conditions of `targets/runtimes.toml` that ask for forms of Attention, and of cache updates.


_LONG_WAY = 100
"""Nodes from a shape back to what it is computed from."""


def _nonpad(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return Attention(node, opset).nonpad_kv_seqlen is not None


def _causal_nonpad_rows(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.nonpad_kv_seqlen is not None and view.is_causal and _length(view.query) != 1


def _masked(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.attn_mask is not None or view.nonpad_kv_seqlen is not None


def _causal_single_row(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    if not view.is_causal or view.nonpad_kv_seqlen is not None or view.past_key is not None:
        return False
    queries, keys = _length(view.query), _length(view.key)
    # With as many keys as queries, a single query has the one key that it may see.
    return queries is None or (queries != keys and (queries == 1 or isinstance(queries, str)))


def _masked_softcap(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.softcap != 0 and _hides_keys(view)


def _masked_score_output(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return (
        "qk_matmul_output" in view.outputs
        and view.integer("qk_matmul_output_mode") in limit.values
        and _hides_keys(view)
    )


def _short_mask(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Only a mask that is certainly short: the release fails loudly on one that turns out to be."""
    view = Attention(node, opset)
    dims = dims_of(view.attn_mask)
    if view.past_key is not None or not dims:
        return False
    return contradict(dims[-1], _length(view.key))


def _window(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.left_window >= 0 or view.right_window >= 0


def _computed_heads(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether heads are grouped in 4-D, and the shape of an operand is computed."""
    view = Attention(node, opset)
    dims = [dims_of(value) for value in (view.query, view.key)]
    if any(one is not None and len(one) == 3 for one in dims):
        return False  # attributes give the numbers
    query, key = (None if one is None else one[1] for one in dims)
    if isinstance(query, int) and query == key:
        return False
    before: list[ir.Value | None] = [view.query, view.key, view.value]
    steps = 0
    while before and steps < _LONG_WAY:
        value = before.pop()
        producer = None if value is None else value.producer()
        if producer is None:
            continue
        if producer.op_type == "Reshape":
            if folder.integers(producer.inputs[1]) is None:
                return True
        elif producer.op_type not in ("MatMul", "Gemm", "TensorScatter", "ScatterND"):
            before += producer.inputs
        steps += 1
    return bool(before)


def _uncounted_heads(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a part of each head is rotated, of which the attributes do not say how many."""
    view = NodeView(node, opset)
    return bool(view.attribute("rotary_embedding_dim")) and not view.attribute("num_heads")


def _no_plain_4d(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    if view.past_key is not None or view.past_value is not None or view.softcap != 0:
        return True
    if view.nonpad_kv_seqlen is not None or set(view.outputs) != {"Y"}:
        return True
    operands = [view.query, view.key, view.value]
    if view.attn_mask is not None:
        operands.append(view.attn_mask)
    return any(len(dims_of(value) or ()) != 4 for value in operands)


def _no_kv_cache_update(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = TensorScatter(node, opset)
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
        and type_of(node) in limit.types
    )


def _hides_keys(view: Attention) -> bool:
    hides = view.is_causal or view.attn_mask is not None or view.nonpad_kv_seqlen is not None
    return hides or view.left_window >= 0 or view.right_window >= 0


def _length(value: ir.Value) -> Dim:
    """Return L of (B, H, L, D) or (B, L, H * D)."""
    dims = dims_of(value)
    return dims[-2] if dims is not None and len(dims) >= 2 else None


ATTENTION_CONDITIONS = (
    ("nonpad", _nonpad),
    ("causal-nonpad-rows", _causal_nonpad_rows),
    ("masked", _masked),
    ("causal-single-row", _causal_single_row),
    ("masked-softcap", _masked_softcap),
    ("masked-score-output", _masked_score_output),
    ("short-mask", _short_mask),
    ("window", _window),
    ("computed-heads", _computed_heads),
    ("uncounted-heads", _uncounted_heads),
    ("no-plain-4d", _no_plain_4d),
    ("no-kv-cache-update", _no_kv_cache_update),
)
"""Lines of `CONDITIONS` in `analysis/conditions.py`."""


# Conditions of `targets/runtimes.toml` on Loop and If.


def unlike_branches(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the branches of an If give shapes that are not called the same."""
    branches = [graph.outputs for _, graph in subgraphs(node)]
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


def unlike_ranks(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the branches of an If give values of different ranks."""
    branches = [graph.outputs for _, graph in subgraphs(node)]
    shapes = ([dims_of(value) for value in outputs] for outputs in branches)
    pairs = zip(*shapes, strict=False)
    return any(None not in pair and len({len(dims or ()) for dims in pair}) > 1 for pair in pairs)


def open_scan(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a Loop that may end early, or whose turns are no constant, gives what it scans."""
    carried = len(node.inputs) - 2
    if not any(output.uses() or output.is_graph_output() for output in node.outputs[carried:]):
        return False
    if folder.integers(node.inputs[0]) is None:
        return True
    (body,) = [graph for _, graph in subgraphs(node)]
    goes_on: ir.Value | None = body.outputs[0]
    while goes_on is not None and (made := goes_on.producer()) is not None:
        if made.op_type != "Identity":
            break
        goes_on = made.inputs[0]
    return goes_on is not body.inputs[1] and folder.integers(goes_on) is None
