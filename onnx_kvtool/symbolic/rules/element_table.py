"""The table of rules, by operator of the default domain."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.symbolic.rules import elementwise, movement, select, slicing, sources
from onnx_kvtool.symbolic.rules.constants import constant_elements
from onnx_kvtool.symbolic.rules.element_site import ElementRule
from onnx_kvtool.symbolic.rules.reshape import reshape_elements

__all__ = ["INDEX_RULES"]

INDEX_RULES: Table[str, ElementRule] = Table(
    "rule of index maps",
    [
        ("Constant", constant_elements),
        ("ConstantOfShape", sources.constant_of_shape_elements),
        ("OneHot", sources.one_hot_elements),
        ("Range", sources.range_elements),
        ("Shape", sources.shape_elements),
        ("Size", sources.size_elements),
        ("Expand", movement.expand_elements),
        ("Identity", movement.identity_elements),
        ("Squeeze", movement.squeeze_elements),
        ("Tile", movement.tile_elements),
        ("Transpose", movement.transpose_elements),
        ("Unsqueeze", movement.unsqueeze_elements),
        ("Reshape", reshape_elements),
        ("Concat", select.concat_elements),
        ("CumSum", select.cumulative_sum_elements),
        ("Gather", select.gather_elements),
        ("ScatterElements", select.scattered_elements),
        ("Slice", slicing.slice_elements),
        ("Split", slicing.split_elements),
        ("Abs", elementwise.absolute_elements),
        ("Add", elementwise.add_elements),
        ("And", elementwise.multiply_elements),
        ("Cast", elementwise.cast_elements),
        ("CastLike", elementwise.cast_elements),
        ("Clip", elementwise.clip_elements),
        ("Div", elementwise.divide_elements),
        ("Equal", elementwise.equal_elements),
        ("Greater", elementwise.comparison_elements(less=True, swap=True)),
        ("GreaterOrEqual", elementwise.comparison_elements(less=False, swap=False)),
        ("Less", elementwise.comparison_elements(less=True, swap=False)),
        ("LessOrEqual", elementwise.comparison_elements(less=False, swap=True)),
        ("Max", elementwise.largest_of_elements),
        ("Min", elementwise.smallest_of_elements),
        ("Mod", elementwise.mod_elements),
        ("Mul", elementwise.multiply_elements),
        ("Neg", elementwise.negate_elements),
        ("Not", elementwise.not_elements),
        ("Or", elementwise.either_elements),
        ("Sub", elementwise.subtract_elements),
        ("Sum", elementwise.add_elements),
        ("Where", elementwise.where_elements),
        ("Xor", elementwise.xor_elements),
    ],
)
