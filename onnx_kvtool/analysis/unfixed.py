"""Which sizes of the inputs of a model are not fixed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.core.words import counted
from onnx_kvtool.symbolic.dimensions import dims_of, names_in


def unfixed_inputs(model: ir.Model, growing: Collection[str] = ()) -> Iterator[Diagnostic]:
    """Yield the dimensions of inputs that are no numbers, each name once.

    Args:
        model: The model.
        growing: Names of sizes that differ from step to step, which no number can stand for.
    """
    path = graph_path(model.graph.name)
    by_name: dict[str, list[tuple[ir.Value, int, str]]] = {}
    for value in model.graph.inputs:
        place = Location(path, value=value.name)
        dims = dims_of(value)
        if dims is None:
            if isinstance(value.type, ir.TensorType):
                yield _static("unknown-rank", place, f"input `{value.name}` declares no shape")
            continue
        for axis, dim in enumerate(dims):
            if dim is None:
                text = f"dimension {axis} of input `{value.name}` has neither a size nor a name"
                yield _static(
                    "unknown-dimension",
                    place,
                    text,
                    "give the dimension a name or a size in the model",
                )
            elif isinstance(dim, str):
                for name in names_in(dim):
                    by_name.setdefault(name, []).append((value, axis, dim))
    for name, places in by_name.items():
        value, axis, dim = places[0]
        text = f"dimension {axis} of input `{value.name}` is `{dim}`, expected a number"
        if len(places) > 1:
            text += f", and so it is in {counted(len(places) - 1, 'other dimension')}"
        place = Location(path, value=value.name)
        if name in growing:
            text = (
                f"dimension {axis} of input `{value.name}` is `{dim}`, which grows with each step"
            )
            help = "export the model with an input of a fixed length there, or without that input"
            yield _static("growing-dimension", place, text, help)
        else:
            yield _static("symbolic-dimension", place, text, f"fix it with `--dim {name}=N`")


def _static(code: str, place: Location, text: str, help: str | None = None) -> Diagnostic:
    return Diagnostic(code, "error", place, text, help)
