"""The table of rules, by operator of the default domain."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.symbolic.index_map.rules import elementwise as by_element
from onnx_kvtool.symbolic.index_map.rules import movement, select, slicing, sources
from onnx_kvtool.symbolic.index_map.rules.constants import constant
from onnx_kvtool.symbolic.index_map.rules.reshape import reshape
from onnx_kvtool.symbolic.index_map.site import Rule

__all__ = ["INDEX_RULES"]

INDEX_RULES: Table[str, Rule] = Table(
    "rule of index maps",
    [
        ("Constant", constant),
        ("ConstantOfShape", sources.constant_of_shape),
        ("OneHot", sources.one_hot),
        ("Range", sources.range_),
        ("Shape", sources.shape),
        ("Size", sources.size),
        ("Expand", movement.expand),
        ("Identity", movement.identity),
        ("Squeeze", movement.squeeze),
        ("Tile", movement.tile),
        ("Transpose", movement.transpose),
        ("Unsqueeze", movement.unsqueeze),
        ("Reshape", reshape),
        ("Concat", select.concat),
        ("CumSum", select.cumulative_sum),
        ("Gather", select.gather),
        ("ScatterElements", select.scatter_elements),
        ("Slice", slicing.slice_),
        ("Split", slicing.split),
        ("Abs", by_element.absolute),
        ("Add", by_element.add),
        ("And", by_element.multiply),
        ("Cast", by_element.cast),
        ("CastLike", by_element.cast),
        ("Clip", by_element.clip),
        ("Div", by_element.divide),
        ("Equal", by_element.equal),
        ("Greater", by_element.comparison(less=True, swap=True)),
        ("GreaterOrEqual", by_element.comparison(less=False, swap=False)),
        ("Less", by_element.comparison(less=True, swap=False)),
        ("LessOrEqual", by_element.comparison(less=False, swap=True)),
        ("Max", by_element.largest_of),
        ("Min", by_element.smallest_of),
        ("Mod", by_element.mod),
        ("Mul", by_element.multiply),
        ("Neg", by_element.negate),
        ("Not", by_element.not_),
        ("Or", by_element.either),
        ("Sub", by_element.subtract),
        ("Sum", by_element.add),
        ("Where", by_element.where),
        ("Xor", by_element.xor),
    ],
)
