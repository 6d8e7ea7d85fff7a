"""MD450: the shape of a tensor is impossible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.defect_rule import DefectRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["BadDims"]


class BadDims(DefectRule):
    """The shape of a tensor is impossible.

    ## What it does

    Looks for tensors, in initializers, attributes and sparse tensors, with a negative dimension or
    more elements than fit into 63 bits. An input or output of a graph that declares a negative
    dimension is a warning: some runtimes read it as unknown.

    ## Why is this bad?

    No data can have such a shape. Readers that multiply the dimensions overflow and allocate too
    little.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `TensorProto.dims`: "The
      shape of the tensor."
    - onnx.checker 1.23.2: "has a shape too large to validate against its data type".
    """

    code = "MD450"
    name = "bad-dims"
    severity = "error"
    basis = "constant"
    defect = "bad-dims"
    remedy = "export the model again"

    bad = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: -2 float_data: 1 }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 10
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Mul" input: "x" input: "w" output: "y" }
          initializer { name: "w" data_type: 1 dims: 2 float_data: 1 float_data: 2 }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Hand on the defects of tensors, then look at what graphs declare."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.walk import graphs

        yield from super().check(context)
        for path, graph in graphs(context.model):
            for value in dict.fromkeys((*graph.inputs, *graph.outputs)):
                for axis, dim in enumerate(value.shape or ()):
                    if isinstance(dim, int) and dim < 0:
                        yield self.found(
                            Location(path, value=value.name),
                            f"`{value.name}` declares the size {dim} on axis {axis}",
                            help="give the dimension a name, or leave its size out",
                            severity="warning",
                        )
