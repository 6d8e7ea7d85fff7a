"""The weights of experts: numbers, or codes with scales, of all of them or of the chosen ones."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.contrib.packed import (
    known_type,
    packed_codes,
    packed_zero_points,
    reshaped,
)
from onnx_kvtool.contrib.rule import Builder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import unsqueeze
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["Slots", "demand_dims", "demanded", "width_of"]

_D = ir.DataType


@dataclass(frozen=True, slots=True)
class Slots:
    """The experts that compute, each in a slot of its own.

    Attributes:
        view: The node.
        em: Where to build.
        experts: How many experts there are.
        chosen: The expert of each slot, (slots,), int64; None where each expert has the slot of its
            number.
        count: How many slots there are.
    """

    view: NodeView
    em: Emitter
    experts: int
    chosen: ir.Value | None
    count: int

    def weights(self, name: str, rows: int, columns: int) -> ir.Value:
        """Return the weights of one product: (slots, rows, columns), of the type of the input.

        Args:
            name: `fc1`, `fc2` or `fc3`.
            rows: Features that come out.
            columns: Features that go in.

        Raises:
            Refusal: If a shape is another, or unknown.
        """
        called, bits = f"{name}_experts_weights", width_of(self.view, name)
        given = demanded(self.view, called)
        demand_dims(self.view, called, self.experts, rows, columns * (bits or 8) // 8)
        if bits is None:
            return self._of(given)
        return self._numbers(given, name, (self.experts, rows, columns), bits)

    def bias(self, name: str, rows: int) -> ir.Value | None:
        """Return what is added to one product: (slots, rows, 1); None without a bias."""
        given = self.view.input(f"{name}_experts_bias")
        if given is None:
            return None
        demand_dims(self.view, f"{name}_experts_bias", self.experts, rows)
        return unsqueeze(self.em, self._of(given), [2])

    def _of(self, given: ir.Value) -> ir.Value:
        if self.chosen is None:
            return given
        return Builder(self.em, known_type(given))("Gather", given, self.chosen, hint="chosen")

    def _numbers(
        self, packed: ir.Value, name: str, shape: tuple[int, int, int], bits: int
    ) -> ir.Value:
        """Return what codes stand for."""
        em, view, (experts, rows, columns) = self.em, self.view, shape
        block = view.attribute("block_size") or columns
        assert isinstance(block, int)
        if block < 1 or columns % block:
            raise Refusal(
                "contrib-form",
                f"`block_size` of `QMoE` is {block}, which does not divide the {columns} columns "
                f"of `{name}_experts_weights`",
            )
        blocks = columns // block
        scales = demanded(view, f"{name}_scales")
        if view.attribute("block_size"):
            demand_dims(view, f"{name}_scales", experts, rows, blocks)
        else:
            demand_dims(view, f"{name}_scales", experts, rows)
            scales = reshaped(em, scales, (experts, rows, 1))
        dtype = known_type(view.required("input"))
        if known_type(scales) != dtype:
            raise Refusal(
                "contrib-form",
                f"`{name}_scales` of `QMoE` is of type {scales.dtype}, expected {dtype}",
            )
        held = self._of(packed)
        codes = packed_codes(em, held, bits, (self.count, rows, columns))
        zero = view.input(f"{name}_zero_points")
        points = self._points(name, zero, bits, codes.dtype, (rows, blocks))
        attributes = {"axis": 2, "block_size": block}
        inputs = (codes, self._of(scales), points)
        return em.op("DequantizeLinear", *inputs, attributes=attributes, dtype=dtype)

    def _points(
        self,
        name: str,
        zero: ir.Value | None,
        bits: int,
        dtype: ir.DataType | None,
        shape: tuple[int, int],
    ) -> ir.Value:
        """Return the zero point of each block: (slots, rows, blocks)."""
        rows, blocks = shape
        if zero is None:
            return packed_zero_points(self.em, None, bits, dtype, (self.count, rows, blocks))
        whole = (self.experts, rows, blocks)
        if not self.view.attribute("block_size"):
            demand_dims(self.view, f"{name}_zero_points", self.experts, -(-rows * bits // 8))
            along = (self.experts, rows)
            return self._of(packed_zero_points(self.em, zero, bits, dtype, whole, along))
        if blocks == 1 and bits != 8:
            raise Refusal(
                "contrib-form",
                f"`{name}_zero_points` of `QMoE` has one block, of which onnxruntime reads another "
                "layout on a CPU than its documentation has",
            )
        packed = -(-blocks * bits // 8)
        demand_dims(self.view, f"{name}_zero_points", self.experts, rows, packed)
        return self._of(packed_zero_points(self.em, zero, bits, dtype, whole))


def width_of(view: NodeView, name: str) -> int | None:
    """Return the bits of a code of one product; None where the weights are numbers."""
    if view.node.op_type == "MoE":
        return None
    given = view.attribute(f"{name}_expert_weight_bits")
    return given if isinstance(given, int) else view.integer("expert_weight_bits")


def demanded(view: NodeView, name: str) -> ir.Value:
    """Return an input without which what the attributes of the node say cannot be computed.

    Raises:
        Refusal: If it is absent.
    """
    value = view.input(name)
    if value is None:
        raise Refusal("contrib-form", f"`{view.node.op_type}` has no `{name}`, expected one")
    return value


def demand_dims(view: NodeView, name: str, *expected: int) -> None:
    """Demand that an input has a shape.

    Raises:
        Refusal: If it has another, or one that is unknown.
    """
    dims = dims_of(demanded(view, name))
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        raise Refusal(
            "unknown-size",
            f"the shape of `{name}` of `{view.node.op_type}` is unknown",
            help="declare it",
        )
    if dims != expected:
        raise Refusal(
            "contrib-form",
            f"`{name}` of `{view.node.op_type}` has shape {dims}, expected {expected}",
        )
