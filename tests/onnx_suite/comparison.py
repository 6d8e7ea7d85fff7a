"""What kvtool says of models out of onnx's tests, beside what onnx said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx.shape_inference

import onnx_kvtool as kv
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.shapes.annotations import innermost
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import is_invented, shape_words

__all__ = ["differences"]

OLDEST, NEWEST_TARGET = 11, 23
"""The opsets that kvtool lowers to."""

Shape = tuple[int | str | None, ...]


def differences(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield in which way kvtool and onnx differ about one model.

    Args:
        record: One of those that `recorder` writes.
    """
    if record["kind"] == "convert":
        yield from _unlike_converted(record)
        return
    if record["kind"] == "made":
        if _is_refused(record["model"], "check", False):
            yield "kvtool refuses what onnx makes"
        else:
            yield from _lowered(record["model"], OLDEST, may_refuse=False)
        return
    if record["refused"] is not None:
        if not _is_refused(record["model"], record["kind"], record["strict"]):
            yield f"onnx refuses it: {' '.join(record['refused'].split())[:160]}"
        return
    if record["kind"] == "infer":
        yield from _unlike(record["model"], record["answer"])


def _unlike_converted(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield in which way lowering differs from a downgrade by the version converter.

    Where kvtool refuses, or lowers, what the converter does not, nothing is wrong: each has its
    own means. A result is compared with the source, and with that of the converter.
    """
    target = min(record["target"], NEWEST_TARGET)
    if not OLDEST <= target < _opset(record["model"]):
        return
    answer = record["answer"]
    yield from _lowered(record["model"], target, answer, may_refuse=answer is None)


def _lowered(
    message: bytes, target: int, converted: bytes | None = None, *, may_refuse: bool
) -> Iterator[str]:
    """Yield what is wrong with a model that is lowered, if it is.

    Args:
        message: The model.
        target: The opset; nothing is done where the model has it, or one below.
        converted: The same by onnx's converter; None if there is none.
        may_refuse: Whether a refusal is nothing wrong.
    """
    if _opset(message) <= target:
        return
    try:
        lowered, report = kv.lower(deserialize(message), opset=target)
        found = report.verification
        if found.status != "equal":
            yield f"lowered to {target}: {found.status}, {found.detail}"
        elif converted is not None:
            found = kv.verify(lowered, deserialize(converted))
            if found.status != "equal":
                yield f"lowered to {target} and by the converter: {found.status}, {found.detail}"
    except KvtoolError as error:
        if not (may_refuse and isinstance(error, kv.Refused)):
            yield f"lower to {target}: {error.message}"


def _opset(message: bytes) -> int:
    imports = onnx.ModelProto.FromString(message).opset_import
    return next((entry.version for entry in imports if entry.domain in ("", "ai.onnx")), 0)


def _is_refused(message: bytes, kind: str, strict: bool) -> bool:
    """Return whether kvtool says that something is wrong, in `check` or in `infer`."""
    try:
        model = deserialize(message)
        report = kv.check(model)
        if any(f.severity == "error" for file in report.files for f in file.findings):
            return True
        return kv.infer(model)[1].failed
    except KvtoolError:
        return True


def _unlike(message: bytes, answer: bytes) -> Iterator[str]:
    """Yield each value of which kvtool knows less than onnx, or something else."""
    try:
        found = infer_model(deserialize(_with_constants(message)))
    except KvtoolError as error:
        yield f"it cannot be read: {error.message}"
        return
    inferred = onnx.ModelProto.FromString(answer).graph
    known = found.run.knowledge
    values = {value.name: value for value in found.run.values}
    for info in (*inferred.value_info, *inferred.output):
        value, tensor = values.get(info.name), innermost(info.type)
        if value is None or tensor is None or not tensor.HasField("shape"):
            continue
        theirs = tuple(_dim(dim) for dim in tensor.shape.dim)
        shape = known.shapes.get(value)
        ours = shape_words(None if shape is None else tuple(map(known.equalities.resolved, shape)))
        if not _covers(ours, theirs):
            yield f"`{info.name}` is {ours}, for onnx {theirs}"


def _with_constants(message: bytes) -> bytes:
    """Return a model in which no initializer is an input.

    Callers may feed such an input another value, so that kvtool does not take its default for a
    constant; onnx's inference does.
    """
    model = onnx.ModelProto.FromString(message)
    held = {tensor.name for tensor in model.graph.initializer}
    kept = [info for info in model.graph.input if info.name not in held]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model.SerializeToString()


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return None if not dim.dim_param or is_invented(dim.dim_param) else dim.dim_param


def _covers(ours: Shape | None, theirs: Shape) -> bool:
    """Return whether a shape says all that another one says in numbers."""
    if ours is None or len(ours) != len(theirs):
        return False
    return all(
        other == one or not isinstance(other, int) for one, other in zip(ours, theirs, strict=True)
    )
