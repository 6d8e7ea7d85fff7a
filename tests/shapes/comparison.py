"""How many values of a model are fully known: as the file says, and after each inference."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.shape_inference

from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.shapes.inference import Inference, infer_model
from onnx_kvtool.symbolic.dimensions import dimensions_in, read_size

__all__ = ["INFERENCES", "Counts", "by_kvtool", "counts", "known_values", "value_infos"]


def value_infos(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto | None]]:
    """Yield the inputs and the outputs of nodes of a graph and of all bodies, with their types."""
    weights = {tensor.name for tensor in graph.initializer}
    infos = {v.name: v.type for v in (*graph.value_info, *graph.output, *graph.input)}
    yield from ((v.name, v.type) for v in graph.input if v.name not in weights)
    for node in graph.node:
        for name in node.output:
            if name:
                yield name, infos.get(name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from value_infos(attribute.g)


def known_values(model: onnx.ModelProto) -> set[str]:
    """Return the values with a type and with sizes that are numbers or say it in inputs' names."""
    names = {
        name
        for value in model.graph.input
        for dim in value.type.tensor_type.shape.dim
        if dim.dim_param
        for name in dimensions_in(read_size(dim.dim_param))
    }
    return {name for name, type_ in value_infos(model.graph) if _is_known(type_, names)}


def _is_known(type_: onnx.TypeProto | None, names: set[str]) -> bool:
    if type_ is None or not type_.HasField("tensor_type"):
        return type_ is not None and type_.WhichOneof("value") is not None
    tensor = type_.tensor_type
    return (
        bool(tensor.elem_type)
        and tensor.HasField("shape")
        and all(
            dim.HasField("dim_value")
            or (bool(dim.dim_param) and set(dimensions_in(read_size(dim.dim_param))) <= names)
            for dim in tensor.shape.dim
        )
    )


def by_onnx(path: Path) -> onnx.ModelProto:
    """Infer with onnx, data propagation switched on."""
    return onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)


def by_symbolic(path: Path) -> onnx.ModelProto:
    """Infer with onnxruntime's symbolic_shape_infer; it raises where it gives up."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    model, home = onnx.load(path), os.getcwd()
    logging.disable(logging.CRITICAL)
    try:
        # Where it gives up it leaves the model, and its weights, in the current directory.
        with tempfile.TemporaryDirectory() as away, contextlib.redirect_stdout(io.StringIO()):
            os.chdir(away)
            return SymbolicShapeInference.infer_shapes(model)
    finally:
        os.chdir(home)
        logging.disable(logging.NOTSET)


@functools.cache
def by_kvtool(path: Path) -> tuple[Inference, onnx.ModelProto]:
    """Infer with kvtool; return what it says and the model it writes."""
    model = read(path)
    found = infer_model(model)
    found.annotate()
    return found, onnx.ModelProto.FromString(serialize(model))


INFERENCES: Mapping[str, Callable[[Path], onnx.ModelProto]] = {
    "onnx": by_onnx,
    "symbolic": by_symbolic,
    "kvtool": lambda path: by_kvtool(path)[1],
}


def _count(infer: Callable[[Path], onnx.ModelProto], path: Path) -> int | None:
    try:
        return len(known_values(infer(path)))
    except Exception:  # noqa: BLE001 - symbolic_shape_infer fails with whatever went wrong inside
        return None


@dataclass(frozen=True, slots=True)
class Counts:
    """Values of one model that are fully known.

    Attributes:
        values: How many values there are.
        declared: How many the file declares.
        by: How many after each inference; None where it fails.
    """

    values: int
    declared: int
    by: Mapping[str, int | None]


@functools.cache
def counts(path: Path) -> Counts:
    """Count for one model."""
    model = onnx.load(path)
    by: dict[str, int | None] = {}
    for name, infer in INFERENCES.items():
        by[name] = _count(infer, path)
    return Counts(len(dict(value_infos(model.graph))), len(known_values(model)), by)
