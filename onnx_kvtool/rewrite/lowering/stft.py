"""STFT-17, for opsets below 17."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.dft_matrix import LARGEST, dft_matrix
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["lower_stft_17"]

_MOST = 1 << 23
"""Most elements of a matrix, 32 MiB of float32; from `LARGEST` on the file does not hold it."""
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def lower_stft_17(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Gather the frames, weigh them, and multiply with the matrix of the transform.

    signal (B, L, C) -> (B, frames, N, C) * window (N, 1) -> (B, frames, N * C)
    x matrix (N * C, K * 2) -> (B, frames, K, 2)

    Of a length that is known at run time only, or large, the matrix is computed when the model
    runs, by Cos and Sin of angles that are reduced to one turn before.

    Refuses a number of components that is unknown, and a length that makes the matrix too large.
    """
    view = NodeView(node, context.opset_of(node))
    signal, step = view.required("signal"), view.required("frame_step")
    window, length = view.input("window"), view.input("frame_length")
    dims = dims_of(signal)
    if dims is None or len(dims) not in (2, 3) or (len(dims) == 3 and dims[2] not in (1, 2)):
        raise Refusal(
            "unknown-dimension",
            f"whether `{signal.name}` is real or complex is unknown, and STFT came with opset 17",
            help="declare the shape of the input",
            lowest_opset=17,
        )
    parts, dtype = (1 if len(dims) == 2 else int(dims[2] or 1)), signal.dtype
    if dtype is None:
        raise Refusal("unknown-element-type", f"the type of `{signal.name}` is unknown")
    wide = dtype if dtype in _WIDE else ir.DataType.FLOAT
    is_half = view.integer("onesided") != 0
    elements = 0
    known, count = _length(context, em, signal, dims, window, length)
    if known is not None:
        if known <= 0:
            raise MalformedNode("bad-length", f"`frame_length` is {known}, expected at least 1")
        elements = known * parts * (known // 2 + 1 if is_half else known) * 2
        if elements > _MOST:
            text = f"STFT of length {known} would need a matrix of more than {_MOST} elements"
            raise Refusal("too-large", text, lowest_opset=17)
    if known is not None and elements <= LARGEST:
        table = dft_matrix(known, parts, None, inverse=False, onesided=is_half)
        flat = table.reshape(known * parts, -1).astype(wide.numpy())
        matrix, numbered = em.constant(flat, "dft"), _counted(em, known, count)
    else:
        numbered = _counted(em, known, count)
        matrix = _matrix(em, count, numbered, parts, is_half, wide)
    x = cast(em, signal, wide)
    x = unsqueeze(em, x, [2]) if len(dims) == 2 else x
    index = _frames(em, size(em, dims[1], signal, 1), step, count, numbered)
    frames = em.op("Gather", x, index, attributes={"axis": 1}, dtype=wide)  # (B, frames, N, C)
    if window is not None:
        column = unsqueeze(em, cast(em, window, wide), [1])
        frames = em.op("Mul", frames, column, dtype=wide)
    rows = em.op("Reshape", frames, em.constant([0, 0, -1], "shape"), dtype=wide)
    product = em.op("MatMul", rows, matrix, dtype=wide)
    result = em.op("Reshape", product, em.constant([0, 0, -1, 2], "shape"), dtype=wide)
    return Replacement((cast(em, result, dtype),))


def _counted(em: Emitter, known: int | None, count: ir.Value) -> ir.Value:
    """Return 0, 1, ... of a length: (N,), int64."""
    if known is not None:
        return em.constant(np.arange(known), "elements")
    return em.op("Range", em.constant(0), count, em.constant(1), hint="elements")


def _scalar(em: Emitter, value: ir.Value) -> ir.Value:
    """Return an integer input as int64: ()."""
    whole = cast(em, value, ir.DataType.INT64)
    return whole if dims_of(value) == () else em.op("Reshape", whole, em.constant([], "scalar"))


def _length(
    context: LoweringContext,
    em: Emitter,
    signal: ir.Value,
    dims: tuple[Dim, ...],
    window: ir.Value | None,
    length: ir.Value | None,
) -> tuple[int | None, ir.Value]:
    """Return the length of a frame where it is known, and as a value: (), int64."""
    if window is not None:
        shape = dims_of(window) or (None,)
        known = shape[0]
        if isinstance(known, int):
            return known, em.constant(known)
    if length is not None:
        numbers = context.folder.integers(length)
        if numbers is not None and numbers.size == 1:
            return int(numbers.ravel()[0]), em.constant(int(numbers.ravel()[0]))
        return None, _scalar(em, length)
    value, axis = (signal, 1) if window is None else (window, 0)
    known = (dims if window is None else dims_of(window) or (None,))[axis]
    return known if isinstance(known, int) else None, size(em, known, value, axis)


def _frames(
    em: Emitter, samples: ir.Value, step: ir.Value, length: ir.Value, numbered: ir.Value
) -> ir.Value:
    """Return which samples each frame consists of: (frames, N), int64."""
    one, stride = em.constant(1), _scalar(em, step)
    room = em.op("Sub", samples, length, hint="room")
    frames = em.op("Add", em.op("Div", room, stride), one, hint="frames")
    count = em.op("Range", em.constant(0), frames, one)
    starts = em.op("Mul", count, stride, hint="starts")
    column = em.op("Reshape", starts, em.constant([-1, 1], "shape"))
    return em.op("Add", column, numbered, hint="samples")


def _matrix(
    em: Emitter,
    count: ir.Value,
    numbered: ir.Value,
    parts: int,
    is_half: bool,
    dtype: ir.DataType,
) -> ir.Value:
    """Return the matrix of a transform of a length that is known at run time: (N * C, K * 2)."""
    # In float64, in which the cosine of a quarter turn is as good as nothing.
    double = ir.DataType.DOUBLE

    def op(op_type: str, *inputs: ir.Value, dtype: ir.DataType = double) -> ir.Value:
        return em.op(op_type, *inputs, dtype=dtype)

    one, two = em.constant(1), em.constant(2)
    outputs = em.op("Add", em.op("Div", count, two), one) if is_half else count
    k = em.op("Range", em.constant(0), outputs, one)
    column = em.op("Reshape", numbered, em.constant([-1, 1], "shape"))
    turns = em.op("Mod", em.op("Mul", column, k), count)  # below N, so that no angle is large
    full = em.constant(np.array(2 * np.pi), "turn")
    angle = op("Mul", op("Div", cast(em, turns, double), cast(em, count, double)), full)
    cosine, sine = (
        unsqueeze(em, cast(em, op(name, angle), dtype), [1, 3]) for name in ("Cos", "Sin")
    )
    last = {"axis": 3}
    rows = em.op("Concat", cosine, op("Neg", sine, dtype=dtype), attributes=last, dtype=dtype)
    if parts == 2:
        other = em.op("Concat", sine, cosine, attributes=last, dtype=dtype)
        rows = em.op("Concat", rows, other, attributes={"axis": 1}, dtype=dtype)
    return em.op("Flatten", rows, attributes={"axis": 2}, dtype=dtype)  # of (N, C, K, 2)
