"""Which sizes of the inputs of a model are not fixed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.core.words import counted
from onnx_kvtool.symbolic.dimensions import dims_of, names_in


def unfixed_inputs(model: ir.Model, growing: Collection[str] = ()) -> Iterator[Diagnostic]:
    """Yield errors for sizes of inputs that are not fixed; one for all that `--dim` can fix.

    It cannot fix those in `growing`, which grow with each step.
    """
    path = graph_path(model.graph.name)
    by_name: dict[str, list[tuple[ir.Value, int, str]]] = {}
    for value in model.graph.inputs:
        place = Location(path, value=value.name)
        dims = dims_of(value)
        if dims is None:
            if isinstance(value.type, ir.TensorType):
                yield static_error("unknown-rank", place, f"input `{value.name}` declares no shape")
            continue
        for axis, dim in enumerate(dims):
            if dim is None:
                text = f"dimension {axis} of input `{value.name}` has neither a size nor a name"
                yield static_error(
                    "unknown-dimension",
                    place,
                    text,
                    "give the dimension a name or a size in the model",
                )
            elif isinstance(dim, str):
                for name in names_in(dim):
                    by_name.setdefault(name, []).append((value, axis, dim))
    missing: dict[str, str] = {}
    for name, places in by_name.items():
        value, axis, dim = places[0]
        text = f"dimension {axis} of input `{value.name}` is `{dim}`"
        if name not in growing:
            alike = len(places) - 1
            missing[name] = text + (f" (and {counted(alike, 'other dimension')})" if alike else "")
            continue
        place = Location(path, value=value.name)
        help = "export the model with an input of a fixed length there, or without that input"
        yield static_error("growing-dimension", place, f"{text}, which grows with each step", help)
    if missing:
        first, *_ = by_name[next(iter(missing))]
        wanted = "fixed sizes" if len(missing) > 1 else "a fixed size"
        text = f"{', '.join(missing.values())}: expected {wanted}"
        help = f"give `{' '.join(f'--dim {name}=N' for name in missing)}`"
        yield static_error("symbolic-dimension", Location(path, value=first[0].name), text, help)


def static_error(code: str, place: Location, text: str, help: str | None = None) -> Diagnostic:
    """Return why a model has no fixed sizes at a place."""
    return Diagnostic(code, "error", place, text, help)
