"""MD454: the parts of a sparse tensor do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["BadSparseTensor"]

_INT64 = 7
_MOST_READ = 1 << 20


class BadSparseTensor(ModelRule):
    """The values, indices and dimensions of a sparse tensor do not fit together.

    ## What it does

    Looks at sparse initializers and at sparse tensors in attributes. The values have to be
    one-dimensional and the dense dimensions positive. The indices have to be int64, one position or
    one tuple of positions per value, inside the dense shape and in ascending order. Indices of more
    than a million entries, and external ones, are not read.

    ## Why is this bad?

    onnx's checker refuses the tensor. A runtime that makes it dense writes out of bounds or, with
    positions that repeat, takes one of several values.

    ## References

    - onnx.checker 1.23.2: "Sparse tensor values ... must have rank 1", "index value at position ...
      out of range", "not in sorted order".
    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `SparseTensorProto`.
    """

    code = "MD454"
    name = "bad-sparse-tensor"
    severity = "error"
    basis = "constant"

    bad = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "scale" op_type: "Mul" input: "x" input: "w" output: "y" }
          sparse_initializer {
            values { name: "w" data_type: 1 dims: 2 float_data: 1 float_data: 2 }
            indices { data_type: 7 dims: 2 int64_data: 1 int64_data: 9 }
            dims: 5
          }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 5 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 5 } } } } }
        }
    """
    good = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "scale" op_type: "Mul" input: "x" input: "w" output: "y" }
          sparse_initializer {
            values { name: "w" data_type: 1 dims: 2 float_data: 1 float_data: 2 }
            indices { data_type: 7 dims: 2 int64_data: 1 int64_data: 4 }
            dims: 5
          }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 5 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 5 } } } } }
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at each sparse tensor as it stood in the file."""
        for place, tensor in _sparse(context):
            problem = next(_problems(tensor), None)
            if problem is not None:
                name = tensor.values.name or place.value
                yield self.found(
                    place,
                    f"the sparse tensor `{name}` {problem}",
                    help="make it dense, or export the model again",
                )


def _sparse(context: Context) -> Iterator[tuple[Location, Any]]:
    from onnx_kvtool.core.messages.forms import SparseInitializer

    for place, tensor in context.tensors:
        if isinstance(tensor, SparseInitializer):
            yield place, tensor.raw
    for site in context.sites:
        for attribute in site.node.attributes.data.values():
            if not attribute.type.name.startswith("SPARSE_TENSOR") or attribute.is_ref():
                continue
            held = attribute.value
            for sparse in held if isinstance(held, tuple) else (held,):
                yield site.location(attribute.name), sparse


def _problems(tensor: Any) -> Iterator[str]:
    """Yield what is wrong, the first of it being what the others may follow from."""
    values, indices, dims = tensor.values, tensor.indices, list(tensor.dims)
    if len(values.dims) != 1:
        yield f"has values of rank {len(values.dims)}, expected 1"
        return
    if not dims or min(dims) <= 0:
        yield f"has the dense shape {dims}, expected positive dimensions"
        return
    count = values.dims[0]
    if not tensor.HasField("indices"):
        if count:
            yield f"has {count} values and no indices"
        return
    if indices.data_type != _INT64:
        yield "has indices of another type than int64"
        return
    shape = list(indices.dims)
    wanted = [count] if len(shape) == 1 else [count, len(dims)]
    if shape != wanted:
        yield f"has indices of shape {shape}, expected {wanted}"
        return
    yield from _order_problems(indices, dims, linear=len(shape) == 1)


def _order_problems(indices: Any, dims: list[int], *, linear: bool) -> Iterator[str]:
    import itertools
    import math

    import numpy as np

    external = indices.data_location == 1
    if external or math.prod(indices.dims) > _MOST_READ:
        return
    raw = indices.raw_data
    stored = (
        np.frombuffer(raw, "<i8") if raw and len(raw) % 8 == 0 else np.array(indices.int64_data)
    )
    if stored.size != math.prod(indices.dims):
        yield f"has {stored.size} indices, and their shape says {math.prod(indices.dims)}"
        return
    table = stored.reshape(-1, 1) if linear else stored.reshape(-1, len(dims))
    limits = np.array([math.prod(dims)] if linear else dims)
    outside = ((table < 0) | (table >= limits)).any(axis=1)
    if outside.any():
        at = int(outside.argmax())
        yield f"has the index {table[at].tolist()} at {at}, outside of {limits.tolist()}"
        return
    rows = [tuple(row) for row in table.tolist()]
    for at, (one, other) in enumerate(itertools.pairwise(rows)):
        if other <= one:
            yield f"has the index {list(other)} at {at + 1} behind {list(one)}, not in order"
            return
