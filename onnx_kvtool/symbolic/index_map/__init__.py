"""What an integer value of a graph holds at each coordinate.

`IndexMaps(opset).of(value)` gives an `IndexMap`: the shape of the value and, as an expression over
its coordinates, what its elements are. So `Unsqueeze(Add(Range(0, L, 1), start), -1)` of shape (L,
1) holds `start + i`, however an exporter writes it. What no rule knows stays `Element(value,
coordinates)`: a symbol for itself, never a guess.

An expression holds for every run of the graph that does not fail before the value is complete,
given that

- shapes and dimension names on the values are true, one name being one size in the whole graph;
- no size reaches 2^30 (`OUTSIDE`);
- no addition, subtraction, multiplication or negation leaves the range of its type (int64, or
  int32), and no divisor is 0. A Cast to int32 is seen through only where the numbers fit.

Integers that wrap around are no concern to one who replaces a scatter by a TensorScatter: the sum
`start + s` wraps only for a start within 2^30 of the largest integer of its type. In linear mode
TensorScatter fails for it; in circular mode its own sum wraps as well. An index that lies outside
its axis, or counts from the end, is judged by whoever asks: `as_index` and `index_facts`.
"""

from __future__ import annotations

from onnx_kvtool.symbolic.index_map.description import IndexMap
from onnx_kvtool.symbolic.index_map.maps import IndexMaps
from onnx_kvtool.symbolic.index_map.site import Unrelated

__all__ = ["IndexMap", "IndexMaps", "Unrelated"]
