"""Where a model came from, which it remembers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import onnx
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.model_io.atomic import Stamp

_KEY = "onnx_kvtool.origin"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model came from, and what was wrong with it there.

    Attributes:
        path: Path as given; `-` for standard input, "" for a model in memory.
        directory: Absolute directory that its external data is relative to; "" in memory.
        defects: What onnx_ir repairs, merges or drops in silence, and what makes an edit unsafe.
            A model with an error here must not be rewritten.
        training: Training information, which is kept as it was read. It names values of the graph,
            so that an edit may make it wrong.
        described: Names of initializers that `value_info` of the file repeats.
        stamp: Of the file when it was read, to tell whether it is still the same.
        made: What functions made of it in memory, such as `lowered`.
    """

    path: str
    directory: str
    defects: tuple[Diagnostic, ...]
    training: tuple[onnx.TrainingInfoProto, ...] = field(default=(), repr=False)
    described: frozenset[str] = field(default=frozenset(), repr=False)
    stamp: Stamp | None = field(default=None, repr=False, compare=False)
    made: tuple[str, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """What reports call the model: its path, and what was made of it in memory."""
        made = f"({', '.join(self.made)})" if self.made else ""
        return f"{self.path} {made}".strip()


def origin(model: ir.Model) -> Origin:
    """Return where `model` came from; `Origin("", "", ())` for one made in memory."""
    found = model.meta.get(_KEY)
    return found if isinstance(found, Origin) else Origin("", "", ())


def set_origin(model: ir.Model, known: Origin) -> None:
    """Say where a model came from."""
    model.meta[_KEY] = known


def note_made(model: ir.Model, how: str) -> None:
    """Give a result in memory a name of its own."""
    known = origin(model)
    set_origin(model, replace(known, made=(*known.made, how)))


def settle(model: ir.Model, code: str, places: Iterable[Location]) -> None:
    """Remove the defects of one code at some places: the model no longer has them."""
    known = origin(model)
    gone = {(code, place) for place in places}
    left = tuple(d for d in known.defects if (d.code, d.location) not in gone)
    model.meta[_KEY] = replace(known, defects=left)
