"""Parallel streams of features (branches): normalized, mixed and gated."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.contrib.block_quantized import reshaped
from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.normalization import root_mean_square
from onnx_kvtool.contrib.rule import Site, is_read, known_type, no_form
from onnx_kvtool.emit.emitter import Replacement
from onnx_kvtool.emit.forms import cast, outputs_of, reduce, unsqueeze
from onnx_kvtool.symbolic.dimensions import dims_of

_D = ir.DataType


def branchwise_rms_norm(site: Site) -> ir.Value:
    """Write BranchwiseRMSNorm as RMSNormalization-23 of the last axis, in float32.

    Branches that are joined on the last axis become a dimension of their own for it.
    """
    streams = _Streams.of(site, "X")
    scale, rows = site.input("scale"), streams.apart(site.required("X"))
    if scale is not None:
        dims, whole = dims_of(scale), streams.branches * streams.width
        if dims not in ((whole,), (streams.branches, streams.width), (streams.width,)):
            raise no_form(
                f"`scale` of `BranchwiseRMSNorm` has shape {dims}, expected {(whole,)}, "
                f"{(streams.branches, streams.width)} or {(streams.width,)}"
            )
        if dims != (streams.width,):
            scale = reshaped(site, scale, (streams.branches, streams.width))
    rows = root_mean_square(site, rows, scale, -1, site.real("epsilon"))
    return streams.joined(rows)


def hyper_connection_pre_mix(site: Site) -> ir.Value:
    """Write HyperConnectionPreMix as Mul and ReduceSum, in float32."""
    streams = _Streams.of(site, "streams")
    op = site.op
    gates = streams.gates(site.required("pre_mix"))
    mixed = op("Mul", streams.apart(site.required("streams")), gates, hint="gated")
    mixed = reduce(site, "ReduceSum", mixed, [streams.front], keepdims=False)
    factor = site.real("reduction_scale")
    if factor != 1.0:
        mixed = op("Mul", mixed, factor)
    return cast(site, mixed, known_type(site.required("streams")))


def hyper_connection_post_mix(site: Site) -> ir.Value:
    """Write HyperConnectionPostMix as MatMul with a transposed matrix, Mul and Add, in float32."""
    streams = _Streams.of(site, "streams")
    op, mix = site.op, site.input("stream_mix")
    rows = streams.apart(site.required("streams"))
    if mix is not None:
        order = [*range(streams.front), streams.front + 1, streams.front]
        turned = op("Transpose", cast(site, mix, _D.FLOAT), perm=order)
        rows = op("MatMul", turned, rows, hint="mixed")
    features = unsqueeze(site, cast(site, site.required("block_output"), _D.FLOAT), [streams.front])
    gated = op("Mul", streams.gates(site.required("post_mix")), features)
    return streams.joined(op("Add", rows, gated, hint="injected"))


def engram_gate(site: Site) -> Replacement:
    """Write EngramGate as RMSNormalization-23, ReduceSum, Sqrt, Sigmoid and Mul, in float32."""
    key, value = site.operands("key", "value")
    dtype = known_type(key)
    width = known_size(key, -1, "the last dimension of `key` of `EngramGate`")
    op, epsilon = site.op, site.real("epsilon")

    def normalized(name: str) -> ir.Value:
        rows, scale = site.operands(name, f"{name}_norm_scale")
        return root_mean_square(site, cast(site, rows, _D.FLOAT), scale, -1, epsilon)

    dots = op("Mul", normalized("key"), normalized("query"))
    dot = op("Mul", reduce(site, "ReduceSum", dots, [-1]), width**-0.5, hint="dot")
    root = op("Sqrt", op("Max", op("Abs", dot), 1e-6))
    gate = op("Sigmoid", op("Mul", op("Sign", dot), root), hint="gate")
    gated = op("Mul", gate, unsqueeze(site, cast(site, value, _D.FLOAT), [2]), hint="gated")
    normed = None
    if is_read(site, 1):
        scale = site.input("conv_norm_scale")
        if scale is None:
            raise no_form("`EngramGate` has no `conv_norm_scale`, expected one")
        normed = cast(site, root_mean_square(site, gated, scale, -1, epsilon), dtype)
    return outputs_of(site.node, cast(site, gated, dtype), normed)


@dataclass(frozen=True, slots=True)
class _Streams:
    """C streams of H features, (..., C, H), or joined (`is_flat`), (..., C * H).

    `front` is the number of dimensions before the streams, `branches` is C, and `width` is H.
    """

    site: Site
    front: int
    branches: int
    width: int
    is_flat: bool
    dtype: ir.DataType

    @classmethod
    def of(cls, site: Site, name: str) -> _Streams:
        """Read the sizes of an input.

        Raises:
            Refusal: If one is unknown, or the branches do not divide the last dimension.
        """
        x, op_type, branches = site.required(name), site.node.op_type, site.integer("num_branches")
        last = known_size(x, -1, f"the last dimension of `{name}` of `{op_type}`")
        rank, dtype = len(dims_of(x) or ()), known_type(x)
        if branches > 0 and last % branches == 0:
            return cls(site, rank - 1, branches, last // branches, True, dtype)
        if branches != 0 or rank < 2:
            raise no_form(
                f"`{name}` of `{op_type}` with a `num_branches` of {branches} has shape "
                f"{dims_of(x)}, which is not that of so many branches"
            )
        count = known_size(x, -2, f"the number of branches of `{op_type}`")
        return cls(site, rank - 2, count, last, False, dtype)

    def apart(self, x: ir.Value) -> ir.Value:
        """Return streams in float32, the branches a dimension of their own: (..., C, H)."""
        wide = cast(self.site, x, _D.FLOAT)
        if not self.is_flat:
            return wide
        return self.site.op(
            "Reshape", wide, [*[0] * self.front, self.branches, self.width], hint="branches"
        )

    def joined(self, x: ir.Value) -> ir.Value:
        """Return (..., C, H) of float32 in the shape and the type of the streams."""
        if self.is_flat:
            shape = [*[0] * self.front, self.branches * self.width]
            x = self.site.op("Reshape", x, shape, hint="joined")
        return cast(self.site, x, self.dtype)

    def gates(self, given: ir.Value) -> ir.Value:
        """Return gates of branches or features, in float32: (..., C, 1 or H).

        Raises:
            Refusal: If their shape is another, or unknown.
        """
        dims, wide = dims_of(given), cast(self.site, given, _D.FLOAT)
        rank, last = len(dims or ()), dims[-1] if dims else None
        if rank == self.front + 1 and last == self.branches:
            return unsqueeze(self.site, wide, [self.front + 1])
        if rank == self.front + 1 and self.is_flat and last == self.branches * self.width:
            return self.apart(given)
        if rank == self.front + 2 and last in (1, self.width):
            return wide
        raise no_form(
            f"`{given.name}` of `{self.site.node.op_type}` has shape {dims}, expected "
            f"(..., {self.branches}), (..., {self.branches}, 1) or "
            f"(..., {self.branches}, {self.width})"
        )
