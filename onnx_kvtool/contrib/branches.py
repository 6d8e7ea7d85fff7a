"""Parallel streams of features (branches): normalized, mixed and gated."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.contrib.block_quantized import reshaped
from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.normalization import root_mean_square
from onnx_kvtool.contrib.rule import is_read, known_type, no_form, only
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import cast, outputs_of, reduce, unsqueeze
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

_D = ir.DataType


def branchwise_rms_norm(view: NodeView, em: Emitter) -> Replacement:
    """Write BranchwiseRMSNorm as RMSNormalization-23 of the last axis, in float32.

    Branches that are joined on the last axis become a dimension of their own for it.
    """
    streams = _Streams.of(view, em, "X")
    scale, rows = view.input("scale"), streams.apart(view.required("X"))
    if scale is not None:
        dims, whole = dims_of(scale), streams.branches * streams.width
        if dims not in ((whole,), (streams.branches, streams.width), (streams.width,)):
            raise no_form(
                f"`scale` of `BranchwiseRMSNorm` has shape {dims}, expected {(whole,)}, "
                f"{(streams.branches, streams.width)} or {(streams.width,)}"
            )
        if dims != (streams.width,):
            scale = reshaped(em, scale, (streams.branches, streams.width))
    rows = root_mean_square(em, rows, scale, -1, view.real("epsilon"))
    return only(streams.joined(rows))


def hyper_connection_pre_mix(view: NodeView, em: Emitter) -> Replacement:
    """Write HyperConnectionPreMix as Mul and ReduceSum, in float32."""
    streams = _Streams.of(view, em, "streams")
    op = em.op
    gates = streams.gates(view.required("pre_mix"))
    mixed = op("Mul", streams.apart(view.required("streams")), gates, hint="gated")
    mixed = reduce(em, "ReduceSum", mixed, [streams.front], keepdims=False)
    factor = view.real("reduction_scale")
    if factor != 1.0:
        mixed = op("Mul", mixed, factor)
    return only(cast(em, mixed, known_type(view.required("streams"))))


def hyper_connection_post_mix(view: NodeView, em: Emitter) -> Replacement:
    """Write HyperConnectionPostMix as MatMul with a transposed matrix, Mul and Add, in float32."""
    streams = _Streams.of(view, em, "streams")
    op, mix = em.op, view.input("stream_mix")
    rows = streams.apart(view.required("streams"))
    if mix is not None:
        order = [*range(streams.front), streams.front + 1, streams.front]
        turned = op("Transpose", cast(em, mix, _D.FLOAT), perm=order)
        rows = op("MatMul", turned, rows, hint="mixed")
    features = unsqueeze(em, cast(em, view.required("block_output"), _D.FLOAT), [streams.front])
    gated = op("Mul", streams.gates(view.required("post_mix")), features)
    return only(streams.joined(op("Add", rows, gated, hint="injected")))


def engram_gate(view: NodeView, em: Emitter) -> Replacement:
    """Write EngramGate as RMSNormalization-23, ReduceSum, Sqrt, Sigmoid and Mul, in float32."""
    key, value = view.operands("key", "value")
    dtype = known_type(key)
    width = known_size(key, -1, "the last dimension of `key` of `EngramGate`")
    op, epsilon = em.op, view.real("epsilon")

    def normalized(name: str) -> ir.Value:
        rows, scale = view.operands(name, f"{name}_norm_scale")
        return root_mean_square(em, cast(em, rows, _D.FLOAT), scale, -1, epsilon)

    dots = op("Mul", normalized("key"), normalized("query"))
    dot = op("Mul", reduce(em, "ReduceSum", dots, [-1]), width**-0.5, hint="dot")
    root = op("Sqrt", op("Max", op("Abs", dot), 1e-6))
    gate = op("Sigmoid", op("Mul", op("Sign", dot), root), hint="gate")
    gated = op("Mul", gate, unsqueeze(em, cast(em, value, _D.FLOAT), [2]), hint="gated")
    normed = None
    if is_read(view, 1):
        scale = view.input("conv_norm_scale")
        if scale is None:
            raise no_form("`EngramGate` has no `conv_norm_scale`, expected one")
        normed = cast(em, root_mean_square(em, gated, scale, -1, epsilon), dtype)
    return outputs_of(view.node, cast(em, gated, dtype), normed)


@dataclass(frozen=True, slots=True)
class _Streams:
    """C streams of H features, (..., C, H), or joined, (..., C * H).

    Attributes:
        view: The node.
        em: Where to build.
        front: Number of dimensions before the streams.
        branches: C.
        width: H.
        is_flat: Whether they are joined.
        dtype: Their type.
    """

    view: NodeView
    em: Emitter
    front: int
    branches: int
    width: int
    is_flat: bool
    dtype: ir.DataType

    @classmethod
    def of(cls, view: NodeView, em: Emitter, name: str) -> _Streams:
        """Read the sizes of an input.

        Raises:
            Refusal: If one is unknown, or the branches do not divide the last dimension.
        """
        x, op_type, branches = view.required(name), view.node.op_type, view.integer("num_branches")
        last = known_size(x, -1, f"the last dimension of `{name}` of `{op_type}`")
        rank, dtype = len(dims_of(x) or ()), known_type(x)
        if branches > 0 and last % branches == 0:
            return cls(view, em, rank - 1, branches, last // branches, True, dtype)
        if branches != 0 or rank < 2:
            raise no_form(
                f"`{name}` of `{op_type}` with a `num_branches` of {branches} has shape "
                f"{dims_of(x)}, which is not that of so many branches"
            )
        count = known_size(x, -2, f"the number of branches of `{op_type}`")
        return cls(view, em, rank - 2, count, last, False, dtype)

    def apart(self, x: ir.Value) -> ir.Value:
        """Return streams in float32, the branches a dimension of their own: (..., C, H)."""
        wide = cast(self.em, x, _D.FLOAT)
        if not self.is_flat:
            return wide
        return self.em.op(
            "Reshape", wide, [*[0] * self.front, self.branches, self.width], hint="branches"
        )

    def joined(self, x: ir.Value) -> ir.Value:
        """Return (..., C, H) of float32 in the shape and the type of the streams."""
        if self.is_flat:
            shape = [*[0] * self.front, self.branches * self.width]
            x = self.em.op("Reshape", x, shape, hint="joined")
        return cast(self.em, x, self.dtype)

    def gates(self, given: ir.Value) -> ir.Value:
        """Return gates of branches or features, in float32: (..., C, 1 or H).

        Raises:
            Refusal: If their shape is another, or unknown.
        """
        dims, wide = dims_of(given), cast(self.em, given, _D.FLOAT)
        rank, last = len(dims or ()), dims[-1] if dims else None
        if rank == self.front + 1 and last == self.branches:
            return unsqueeze(self.em, wide, [self.front + 1])
        if rank == self.front + 1 and self.is_flat and last == self.branches * self.width:
            return self.apart(given)
        if rank == self.front + 2 and last in (1, self.width):
            return wide
        raise no_form(
            f"`{given.name}` of `{self.view.node.op_type}` has shape {dims}, expected "
            f"(..., {self.branches}), (..., {self.branches}, 1) or "
            f"(..., {self.branches}, {self.width})"
        )
