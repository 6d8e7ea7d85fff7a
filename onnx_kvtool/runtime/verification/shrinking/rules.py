"""How operators tie the sizes of their operands to each other.

An operator stands in the table if its result means the same whatever the sizes are that it leaves
unpinned: a product over 4096 columns and one over 24 are the same operation. An operator that
stands nowhere keeps the sizes of everything it reads.

None of this is read off `symbolic.rules`, on purpose: what verification rests on must not share a
fault with the inference that a rewrite rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.runtime.verification.shrinking.attending import (
    attention,
    group_query_attention,
    rotary_embedding,
    scatter_elements,
    scatter_nd,
    tensor_scatter,
)
from onnx_kvtool.runtime.verification.shrinking.call import Call
from onnx_kvtool.runtime.verification.shrinking.experts import (
    mixture_of_experts,
    quantized_mixture_of_experts,
    top_k,
)
from onnx_kvtool.runtime.verification.shrinking.quantised import (
    dequantize,
    gather_block_quantized,
    mat_mul_n_bits,
)
from onnx_kvtool.runtime.verification.shrinking.reshaping import (
    concat,
    expand,
    reshape,
    slice_,
    split,
    tile,
)
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, bind, broadcast, pin

__all__ = ["SIZE_RULES", "SizeRule"]

SizeRule = Callable[[Call], list[Shape | None] | None]
"""Returns the shapes of the outputs; None if the rule cannot say, so that all sizes are kept."""


def _same(call: Call) -> list[Shape | None] | None:
    """Every output has the shape of the first input; further inputs are scalars."""
    return [call.shape(0)] * len(call.node.output)


def _elementwise(call: Call) -> list[Shape | None] | None:
    return [broadcast(call.shapes)]


def _normalization(call: Call) -> list[Shape | None] | None:
    """Scale and bias broadcast to the input."""
    shape = broadcast([s for s in call.shapes if s is not None])
    others: list[Shape | None] = [None] * (len(call.node.output) - 1)
    return [shape, *others]


def _skip_normalization(call: Call) -> list[Shape | None] | None:
    """Normalise the sum of two inputs; the fourth output is the sum."""
    shape = broadcast([s for s in call.shapes if s is not None])
    outputs: list[Shape | None] = [shape, None, None, shape]
    return outputs[: len(call.node.output)]


def _matmul(call: Call) -> list[Shape | None] | None:
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    a[-1].join(b[-2])
    rows = broadcast([a[:-2], b[:-2]])
    return None if rows is None else [[*rows, a[-2], b[-1]]]


def _gemm(call: Call) -> list[Shape | None] | None:
    a, b = call.shape(0), call.shape(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    left = a[::-1] if call.number("transA") else a
    right = b[::-1] if call.number("transB") else b
    left[1].join(right[0])
    result = [left[0], right[1]]
    if len(call.node.input) > 2 and call.node.input[2]:
        # The bias has no more dimensions than the product.
        return [broadcast([result, call.shape(2)])]
    return [result]


def _gather(call: Call) -> list[Shape | None] | None:
    data, indices = call.shape(0), call.shape(1)
    axis = call.axis(data)
    if data is None or indices is None or axis is None:
        return None
    name = call.node.input[1]
    if call.is_token[1]:
        for atom in data[axis].atoms():
            atom.what = atom.what or "tokens"
    elif len(indices) == 1 and indices[0].number == data[axis].number:
        # A constant that puts all in another order; it may follow where it says so regularly.
        data[axis].join(indices[0])
        call.links.tables.append((name, data[axis]))
    else:
        pin(data[axis : axis + 1])
    return [[*data[:axis], *indices, *data[axis + 1 :]]]


def _gather_elements(call: Call) -> list[Shape | None] | None:
    """Indices have the sizes of what they are taken from, but along the axis."""
    data, indices = call.shape(0), call.shape(1)
    axis = call.axis(data)
    if data is None or indices is None or axis is None or len(data) != len(indices):
        return None
    for place, (one, other) in enumerate(zip(data, indices, strict=True)):
        if place == axis:
            pin([one, other])
        else:
            one.join(other)
    return [indices]


def _transpose(call: Call) -> list[Shape | None] | None:
    shape = call.shape(0)
    if shape is None:
        return None
    order = call.numbers("perm")
    if order is not None and sorted(order) != list(range(len(shape))):
        return None
    return [shape[::-1] if order is None else [shape[axis] for axis in order]]


def _axes(call: Call, rank: int) -> list[int] | None:
    """Return the axes of an attribute or of the second input; None if they are not known."""
    axes = call.numbers("axes")
    if axes is None:
        has_input = len(call.node.input) > 1 and call.node.input[1]
        axes = call.constant(1) if has_input else []
    return None if axes is None else _counted(axes, rank)


def _counted(axes: Sequence[int], rank: int) -> list[int] | None:
    """Return axes counted from the front; None if one of them does not exist."""
    if not all(-rank <= axis < rank for axis in axes):
        return None
    return [axis % rank for axis in axes]


def _unsqueeze(call: Call) -> list[Shape | None] | None:
    shape = call.shape(0)
    if shape is None:
        return None
    given = call.numbers("axes") or call.constant(1)
    if given is None:
        return None
    rank = len(shape) + len(given)
    new = _counted(given, rank)
    if new is None or len(set(new)) < len(given):
        return None
    rest = iter(shape)
    return [[bind(1) if axis in new else next(rest) for axis in range(rank)]]


def _squeeze(call: Call) -> list[Shape | None] | None:
    shape = call.shape(0)
    axes = None if shape is None else _axes(call, len(shape))
    if shape is None or not axes:
        return None
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _reduce(call: Call) -> list[Shape | None] | None:
    shape = call.shape(0)
    axes = None if shape is None else _axes(call, len(shape))
    if shape is None or axes is None:
        return None
    if not axes and not call.number("noop_with_empty_axes"):
        axes = list(range(len(shape)))
    if call.number("keepdims"):
        return [[bind(1) if axis in axes else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _shape(call: Call) -> list[Shape | None] | None:
    """The numbers follow the sizes when the model runs."""
    return [[bind(None)]]


def _by_traits() -> Iterator[tuple[tuple[str, str], SizeRule]]:
    """Yield the lines of operators whose traits tie all that there is to tie."""
    for op in sorted(having(Trait.BROADCASTS)):
        yield ("", op), _elementwise
    for op in sorted(having(Trait.ELEMENTWISE, Trait.KEEPS_SHAPE) - having(Trait.RANDOM)):
        yield ("", op), _same
    for op in sorted(having(Trait.REDUCES) - having(Trait.DECIDES)):
        yield ("", op), _reduce


_OWN: Table[tuple[str, str], SizeRule] = Table(
    "rule of sizes of one operator",
    [
        (("", "Attention"), attention),
        (("", "Concat"), concat),
        (("", "DequantizeLinear"), dequantize),
        (("", "Expand"), expand),
        (("", "Gather"), _gather),
        (("", "GatherElements"), _gather_elements),
        (("", "Gemm"), _gemm),
        (("", "Identity"), _same),
        (("", "LayerNormalization"), _normalization),
        (("", "LogSoftmax"), _same),
        (("", "MatMul"), _matmul),
        (("", "PRelu"), _elementwise),
        (("", "QuantizeLinear"), dequantize),
        (("", "RMSNormalization"), _normalization),
        (("", "Range"), _shape),
        (("", "Reshape"), reshape),
        (("", "RotaryEmbedding"), rotary_embedding),
        (("", "ScatterElements"), scatter_elements),
        (("", "ScatterND"), scatter_nd),
        (("", "Shape"), _shape),
        (("", "SimplifiedLayerNormalization"), _normalization),
        (("", "Slice"), slice_),
        (("", "Softmax"), _same),
        (("", "Split"), split),
        (("", "Squeeze"), _squeeze),
        (("", "SwiGLU"), _elementwise),
        (("", "TensorScatter"), tensor_scatter),
        (("", "Tile"), tile),
        (("", "TopK"), top_k),
        (("", "Transpose"), _transpose),
        (("", "Unsqueeze"), _unsqueeze),
        (("com.microsoft", "GatherBlockQuantized"), gather_block_quantized),
        (("com.microsoft", "GroupQueryAttention"), group_query_attention),
        (("com.microsoft", "MatMulNBits"), mat_mul_n_bits),
        (("com.microsoft", "MoE"), mixture_of_experts),
        (("com.microsoft", "QMoE"), quantized_mixture_of_experts),
        (("com.microsoft", "SkipLayerNormalization"), _skip_normalization),
        (("com.microsoft", "SkipSimplifiedLayerNormalization"), _skip_normalization),
    ],
)
"""What the traits of an operator do not say."""

SIZE_RULES: Table[tuple[str, str], SizeRule] = Table(
    "rule of sizes",
    [*_OWN.items(), *((op, rule) for op, rule in _by_traits() if op not in _OWN)],
)
"""By domain and operator."""
