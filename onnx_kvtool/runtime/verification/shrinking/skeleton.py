"""A model without the values of its weights, as a message that can be given other weights."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.checker
import onnx.inliner
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.messages.forms import SparseInitializer
from onnx_kvtool.core.messages.message import MessageWriter
from onnx_kvtool.core.walk import graphs

__all__ = ["SMALL", "WEIGHT_TYPES", "Skeleton", "skeleton"]

SMALL = 64
"""A size up to this one is never changed; a tensor of no more elements keeps its values."""

WEIGHT_TYPES = frozenset(
    {
        ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16,
        ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2, ir.DataType.INT8, ir.DataType.UINT8,
        ir.DataType.INT4, ir.DataType.UINT4,
    }
)  # fmt: skip
"""Types that may hold weights; other integers are sizes and indices, whose values matter."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One model.

    Attributes:
        name: What messages call it.
        message: The model with calls of its functions inlined. Weights of the main graph have type
            and dims, and no values.
        weights: All initializers of the main graph by name; their values are not read.
        bare: Names of those that have no values in the message.
    """

    name: str
    message: onnx.ModelProto
    weights: dict[str, ir.TensorProtocol]
    bare: frozenset[str]


def skeleton(model: ir.Model, name: str) -> Skeleton:
    """Return the skeleton of `model`, which may be edited afterwards; no weight is read.

    Raises:
        KvtoolError: If the model has no written form, or weights outside the main graph; if its
            functions call each other in a circle.
    """
    writer = _SkeletonWriter(model.graph)
    try:
        message = writer.model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise KvtoolError(f"the model cannot be written: {error}") from error
    for path, graph in graphs(model):
        if graph is model.graph:
            continue
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                raise KvtoolError(f"`{path}` holds a weight of its own, `{value.name}`")
    if message.functions:
        try:
            message = onnx.inliner.inline_local_functions(message)
        except (onnx.checker.ValidationError, RuntimeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise KvtoolError(f"the functions cannot be inlined: {reason}") from error
    del message.graph.value_info[:]
    weights = {
        initializer: value.const_value
        for initializer, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    return Skeleton(name, message, weights, frozenset(writer.bare))


class _SkeletonWriter(MessageWriter):
    """Writes weights of the main graph without their values."""

    def __init__(self, main: ir.Graph) -> None:
        super().__init__()
        self.bare: set[str] = set()
        self._main = main
        self._in_main = False

    def initializers(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        self._in_main = graph is self._main
        super().initializers(out, graph)

    def initializer(self, out: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
        is_weight = not isinstance(tensor, SparseInitializer) and (
            isinstance(tensor, ir.ExternalTensor)
            or (tensor.dtype in WEIGHT_TYPES and tensor.size > SMALL)
        )
        if not self._in_main or not is_weight:
            super().initializer(out, name, tensor)
            return
        self.bare.add(name)
        written = out.initializer.add(name=name, data_type=int(tensor.dtype))
        written.dims.extend(tensor.shape.numpy())
        written.data_location = onnx.TensorProto.EXTERNAL
        written.external_data.add(key="location", value="nowhere")

    def metadata(self, out: object, entries: object) -> None:
        """Leave it out: no runtime reads it."""
