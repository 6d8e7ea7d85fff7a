"""MD406: the model holds more bytes than one protobuf message can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ProtoOver2gb"]


class ProtoOver2gb(ModelRule):
    """The tensors in the model itself take more bytes than one protobuf message can hold.

    ## What it does

    Adds up the bytes of all tensors, by shape and type, that are not external data, and compares
    them with 2,147,483,647. A file of that size cannot be read at all and is
    [MD400](MD400.md); this rule is for models in memory, and for shapes that promise too much.

    There is no fix: a model that can be read from a file does not have the bytes that its shapes
    promise, and where the weights of one in memory are to go is for its owner to say.

    ## Why is this bad?

    A protobuf message has 2 GiB at most: the model cannot be written, and tools that try to
    serialise it for a check fail with errors that do not say so.

    ## References

    - [Size limits of protobuf](https://protobuf.dev/programming-guides/proto-limits/#total).
    - [External data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md).
    """

    code = "MD406"
    name = "proto-over-2gb"
    severity = "error"
    basis = "constant"

    bad = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "look_up" op_type: "Gather" input: "weights" input: "x" output: "y" }
          initializer { name: "weights" data_type: 1 dims: 20000 dims: 30000 }
          input { name: "x" type { tensor_type { elem_type: 7 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { } dim { } } } } }
        }
    """
    good = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "look_up" op_type: "Gather" input: "weights" input: "x" output: "y" }
          initializer {
            name: "weights" data_type: 1 dims: 20000 dims: 30000 data_location: EXTERNAL
            external_data { key: "location" value: "weights.bin" }
          }
          input { name: "x" type { tensor_type { elem_type: 7 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { } dim { } } } } }
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Add up sizes; no value is read."""
        import onnx_ir as ir

        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.storage import MAX_MESSAGE_BYTES, tensor_bytes

        total = largest = 0
        place = Location()
        for where, tensor in context.tensors:
            if isinstance(tensor, ir.ExternalTensor):
                continue
            size = tensor_bytes(tensor)
            total += size
            if size > largest:
                largest, place = size, where
        if total > MAX_MESSAGE_BYTES:
            yield self.found(
                Location(),
                f"the tensors in the model take {total:,} bytes, `{place.value}` alone "
                f"{largest:,}, and a protobuf message holds {MAX_MESSAGE_BYTES:,} at most",
                help="store the weights as external data: "
                "`onnx.save_model(..., save_as_external_data=True)`",
            )
