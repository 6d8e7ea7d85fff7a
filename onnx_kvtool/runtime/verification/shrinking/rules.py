"""How operators tie the sizes of their operands to each other.

An operator stands in the table if its result means the same whatever the sizes are that it leaves
unpinned: a product over 4096 columns and one over 24 are the same operation. An operator that
stands nowhere keeps the sizes of everything it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_kvtool.core.table import Table
from onnx_kvtool.runtime.verification.shrinking.call import Call
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, bind, broadcast, pin

__all__ = ["RULES", "Rule"]

Rule = Callable[[Call], list[Shape | None] | None]
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
    left = a[::-1] if call.number("transA", 0) else a
    right = b[::-1] if call.number("transB", 0) else b
    left[1].join(right[0])
    result = [left[0], right[1]]
    if len(call.node.input) > 2 and call.node.input[2]:
        # The bias has no more dimensions than the product.
        return [broadcast([result, call.shape(2)])]
    return [result]


def _gather(call: Call) -> list[Shape | None] | None:
    data, indices = call.shape(0), call.shape(1)
    axis = _axis(call, 0, data)
    if data is None or indices is None or axis is None:
        return None
    if not call.is_token[1]:
        pin(data[axis : axis + 1])
    return [[*data[:axis], *indices, *data[axis + 1 :]]]


def _transpose(call: Call) -> list[Shape | None] | None:
    shape = call.shape(0)
    if shape is None:
        return None
    order = call.numbers("perm")
    if order is not None and sorted(order) != list(range(len(shape))):
        return None
    return [shape[::-1] if order is None else [shape[axis] for axis in order]]


def _reshape(call: Call) -> list[Shape | None] | None:
    """A 0 copies a size; what is merged or split stays as it is."""
    shape, target = call.shape(0), call.constant(1)
    if shape is None or target is None or call.number("allowzero", 0):
        return None
    copied = {axis for axis, size in enumerate(target) if size == 0}
    if copied and max(copied) >= len(shape):
        return None
    pin([size for axis, size in enumerate(shape) if axis not in copied])
    return [
        [
            shape[axis] if axis in copied else bind(size if size > 0 else None)
            for axis, size in enumerate(target)
        ]
    ]


def _axes(call: Call, rank: int) -> list[int] | None:
    """Return the axes of an attribute or of the second input; None if they are not known."""
    axes = call.numbers("axes")
    if axes is None:
        has_input = len(call.node.input) > 1 and call.node.input[1]
        axes = call.constant(1) if has_input else []
    return None if axes is None else _counted(axes, rank)


def _axis(call: Call, default: int, shape: Shape | None) -> int | None:
    """Return the attribute `axis` of a value; None if there is no such axis, or no shape."""
    counted = None if shape is None else _counted([call.number("axis", default)], len(shape))
    return counted[0] if counted else None


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
    if not axes and not call.number("noop_with_empty_axes", 0):
        axes = list(range(len(shape)))
    if call.number("keepdims", 1):
        return [[bind(1) if axis in axes else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def _concat(call: Call) -> list[Shape | None] | None:
    """What is joined stays as it is; the other sizes are the same in every part."""
    parts = [shape for shape in call.shapes if shape is not None]
    if len(parts) < len(call.shapes) or len({len(part) for part in parts}) != 1:
        return None
    axis = _axis(call, 0, parts[0])
    if axis is None:
        return None
    for part in parts:
        pin(part[axis : axis + 1])
        for place, size in enumerate(part):
            if place != axis:
                parts[0][place].join(size)
    return [[bind(None) if place == axis else size for place, size in enumerate(parts[0])]]


def _split(call: Call) -> list[Shape | None] | None:
    shape = call.shape(0)
    axis = _axis(call, 0, shape)
    if shape is None or axis is None:
        return None
    pin(shape[axis : axis + 1])
    part: Shape = [bind(None) if place == axis else size for place, size in enumerate(shape)]
    return [part] * len(call.node.output)


def _slice(call: Call) -> list[Shape | None] | None:
    shape, axes = call.shape(0), call.constant(3)
    cut = None if shape is None or axes is None else _counted(axes, len(shape))
    if shape is None or cut is None:
        return None
    pin([size for place, size in enumerate(shape) if place in cut])
    return [[bind(None) if place in cut else size for place, size in enumerate(shape)]]


def _shape(call: Call) -> list[Shape | None] | None:
    """The numbers follow the sizes when the model runs."""
    return [[bind(None)]]


def _tensor_scatter(call: Call) -> list[Shape | None] | None:
    past, update = call.shape(0), call.shape(1)
    axis = _axis(call, -2, past)
    if past is None or update is None or axis is None or len(past) != len(update):
        return None
    for place, (one, other) in enumerate(zip(past, update, strict=True)):
        if place == axis:
            pin([one, other])
        else:
            one.join(other)
    return [past]


def _dequantize(call: Call) -> list[Shape | None] | None:
    """Scales are one number, or one for each index of an axis; blocks stay as they are."""
    shape = call.shape(0)
    if shape is None or call.number("block_size", 0):
        return None
    axis = _axis(call, 1, shape)
    for scale in call.shapes[1:]:
        if scale and len(scale) == 1 and not scale[0].is_one:
            if axis is None:
                return None
            shape[axis].join(scale[0])
        elif scale is None or len(scale) > 1:
            return None
    return [shape]


_UNARY = (
    "Abs", "Cast", "Ceil", "Celu", "Clip", "Cos", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "LogSoftmax",
    "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_BINARY = (
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
    "Mean", "Min", "Mod", "Mul", "Or", "Pow", "PRelu", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Table[tuple[str, str], Rule] = Table(
    "rule of sizes",
    [
        *((("", op), _same) for op in (*_UNARY, "CastLike")),
        *((("", op), _elementwise) for op in _BINARY),
        *((("", op), _reduce) for op in _REDUCTIONS),
        (("", "Concat"), _concat),
        (("", "DequantizeLinear"), _dequantize),
        (("", "Gather"), _gather),
        (("", "Gemm"), _gemm),
        (("", "LayerNormalization"), _normalization),
        (("", "MatMul"), _matmul),
        (("", "QuantizeLinear"), _dequantize),
        (("", "RMSNormalization"), _normalization),
        (("", "Reshape"), _reshape),
        (("", "Shape"), _shape),
        (("", "SimplifiedLayerNormalization"), _normalization),
        (("", "Slice"), _slice),
        (("", "Split"), _split),
        (("", "Squeeze"), _squeeze),
        (("", "TensorScatter"), _tensor_scatter),
        (("", "Transpose"), _transpose),
        (("", "Unsqueeze"), _unsqueeze),
        (("com.microsoft", "SkipLayerNormalization"), _skip_normalization),
        (("com.microsoft", "SkipSimplifiedLayerNormalization"), _skip_normalization),
    ],
)
"""By domain and operator."""
