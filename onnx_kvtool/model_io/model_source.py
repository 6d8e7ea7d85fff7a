"""A model as every function of the library takes it: a path, a message, or one in memory."""

from __future__ import annotations

import os
from dataclasses import replace

import onnx
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.core.storage import new_mark, put_back
from onnx_kvtool.model_io.claims import Judgement, judge_tensor
from onnx_kvtool.model_io.message import MessageWriter
from onnx_kvtool.model_io.model import from_message, origin, path_text, read, reason, set_origin

ModelSource = ir.Model | onnx.ModelProto | str | os.PathLike[str]
"""What stands for a model: an `onnx_ir.Model` or a message, which are never changed, or
the path of a file."""

_SHOWN = frozenset(
    {
        "duplicate-input",
        "missing-op-type",
        "missing-opset-import",
        "recursive-function",
        "shadowed-value",
        "trailing-empty-output",
        "undefined-input",
        "undefined-output",
        "unnamed-input",
        "unsorted-nodes",
    }
)
"""Defects that an `onnx_ir.Model` still has as its file had them. The others onnx_ir has repaired
or dropped by then, and they are known from the reading alone."""


def path_of(source: ModelSource) -> str:
    """Return the path that stands for a model; "" for one in memory.

    Raises:
        UsageError: If it is nothing that stands for a model.
    """
    if isinstance(source, ir.Model | onnx.ModelProto):
        return ""
    return path_text(source)


def open_model(source: ModelSource) -> ir.Model:
    """Return a model of its own, judged as its file would be.

    A model in memory is copied, but for its tensors, which are shared. The copy is what kvtool
    would read from the file of the model, so that it finds the same defects.

    Raises:
        UsageError: If it is nothing that stands for a model.
        UnreadableModel: As `read`.
        KvtoolError: If a model in memory has no written form, as with a value without a name.
    """
    if isinstance(source, ir.Model):
        with collector_paused():
            return _copied(source)
    if isinstance(source, onnx.ModelProto):
        message = onnx.ModelProto()
        message.CopyFrom(source)
        with collector_paused():
            return from_message(message, "", "the model", "")
    return read(source)


def _copied(model: ir.Model) -> ir.Model:
    known = origin(model)
    writer = _Outline(known.described)
    try:
        message = writer.model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise KvtoolError(f"the model cannot be written: {reason(error)}") from error
    message.training_info.extend(known.training)
    copy = from_message(message, "", "the model", "")
    put_back(copy, writer.mark, lambda number, _: writer.tensors[number])
    shown = origin(copy)
    before = [d for d in known.defects if d.code not in _SHOWN]
    seen = {(d.code, d.location) for d in before}
    claims = Judgement()
    for place, tensor in walk.tensors(copy):
        if isinstance(tensor, ir.TensorProtoTensor):
            judge_tensor(tensor.raw, claims, place)
    anew = [d for d in (*shown.defects, *claims.defects) if (d.code, d.location) not in seen]
    set_origin(copy, replace(known, defects=(*before, *anew), described=shown.described))
    return copy


class _Outline(MessageWriter):
    """Writes a model with a placeholder for each tensor, so that no value is touched.

    Attributes:
        mark: What the locations of placeholders begin with.
        tensors: The tensors; a placeholder is the mark and the position here.
    """

    def __init__(self, described: frozenset[str]) -> None:
        super().__init__(described)
        self.mark = new_mark()
        self.tensors: list[ir.TensorProtocol] = []

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        out.name = tensor.name or ""
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy())
        out.data_location = onnx.TensorProto.EXTERNAL
        out.external_data.add(key="location", value=f"{self.mark}{len(self.tensors)}")
        self.tensors.append(tensor)
