"""Writing what was found on the values of a model."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.model_io.forms import VerbatimType
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.symbolic.dimensions import is_invented, read_size, words
from onnx_kvtool.symbolic.expressions import Expr

__all__ = ["Writer"]

_Dims = tuple["int | str | None", ...]


class Writer:
    """Writes types and shapes on values.

    Args:
        run: The facts.
        frozen: Whether values of one shape share one object, which cannot be edited.
    """

    def __init__(self, run: Forward, *, frozen: bool) -> None:
        self._run = run
        self._frozen = frozen
        self._shapes: dict[_Dims, ir.Shape] = {}
        # By identity: most nodes hand on the very shape of an input.
        self._shared: dict[int, ir.Shape] = {}
        self._words: dict[Expr, str | None] = {}

    def annotate(self, value: ir.Value) -> None:
        """Write type and shape of one value; what is unknown stays as it is."""
        knowledge = self._run.knowledge
        if value in knowledge.types and not isinstance(value.type, VerbatimType):
            value.type = knowledge.types[value]
        shape = knowledge.shapes.get(value)
        if shape is None:
            return
        old = value.shape if value.shape is not None and len(value.shape) == len(shape) else None
        keep = value.is_graph_output() or value.producer() is None
        if self._frozen and old is None and id(shape) in self._shared:
            value.shape = self._shared[id(shape)]
            return
        dims = tuple(
            size.number
            if size.number is not None
            else self._dim(size, None if old is None else old[axis], keep=keep)
            for axis, size in enumerate(shape)
        )
        if not self._frozen:
            value.shape = ir.Shape(dims)
            return
        found = self._shapes.get(dims)
        if found is None:
            found = self._shapes[dims] = ir.Shape(dims, frozen=True)
        value.shape = found
        if old is None:
            self._shared[id(shape)] = found

    def _dim(
        self, size: Expr, given: int | ir.SymbolicDim | None, *, keep: bool
    ) -> int | str | None:
        """Return what is written for a size.

        Args:
            size: The size that was found.
            given: What the file declares.
            keep: Whether names of inputs stay that the file gives, because callers know them.
        """
        run = self._run
        size = run.knowledge.equalities.resolved(size, unnamed_only=True)
        if size.number is not None:
            return size.number
        text = given.value if isinstance(given, ir.SymbolicDim) else None
        if not run.is_known(size):
            if isinstance(given, int):
                return given
            return None if text is None or is_invented(text) else self._bound(text)
        if text is not None:
            declared = run.size(text)
            if declared == size or (keep and run.is_known(declared)):
                return self._bound(text)
        if size not in self._words:
            self._words[size] = words(size)
        return self._words[size]

    def _bound(self, text: str) -> int | str:
        """Return the text of a size with the given values put in; as it is where none is in it."""
        size = self._run.size(text)
        if size.number is not None:
            return size.number
        return text if size == read_size(text) else words(size) or text
