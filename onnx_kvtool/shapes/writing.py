"""Writing inferred types, shapes and fixed sizes to the values of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx
import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs, values
from onnx_kvtool.model_io.verbatim import VerbatimType
from onnx_kvtool.shapes.annotations import Completion
from onnx_kvtool.shapes.forward import Forward
from onnx_kvtool.symbolic.dimensions import (
    Dim,
    Dims,
    bind_dim,
    is_composed,
    is_invented,
    read_size,
    words,
)
from onnx_kvtool.symbolic.expressions import Expr
from onnx_kvtool.symbolic.knowledge import Knowledge


class Writer:
    """Writes types and shapes on values.

    Args:
        run: The facts.
        frozen: Whether values of one shape share one object, which cannot be edited.
    """

    def __init__(self, run: Forward, *, frozen: bool) -> None:
        self._run = run
        self._frozen = frozen
        self._shapes: dict[Dims, ir.Shape] = {}
        # By identity: most nodes hand on the very shape of an input.
        self._shared: dict[int, ir.Shape] = {}
        self._words: dict[Expr, str | None] = {}

    def annotate(self, value: ir.Value) -> None:
        """Write the type and shape of one value; unknown facts stay unchanged."""
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

    def _dim(self, size: Expr, given: int | ir.SymbolicDim | None, *, keep: bool) -> Dim:
        """Return the dimension to write for a size.

        Args:
            size: The inferred size.
            given: The declared dimension.
            keep: Whether a declared name of an input stays, because callers know it.
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
        """Return the text of a size with the given values of dimensions."""
        size = self._run.size(text)
        if size.number is not None:
            return size.number
        return text if size == read_size(text) else words(size) or text


def fill(
    model: ir.Model,
    lacking: Collection[ir.Value],
    told: Mapping[str, onnx.TypeProto],
    completion: Completion,
) -> Forward:
    """Write the types and shapes of kvtool's own inference on values that lack them, in place.

    onnx does not know contrib operators, nor what follows them. Rewrites rely on the written sizes.
    So a size that is computed from several names stays unknown. If the model contradicts itself, or
    if a size depends on another one that must not be 0, only types and ranks are written.

    Args:
        model: The model.
        lacking: The values to write on.
        told: The types of the main graph's values that onnx inferred, by name.
        completion: Writes, and records the values.

    Returns:
        The inference.
    """
    before = [(value, value.type) for value in values(model)]
    run = Forward(model, {}, told)
    try:
        run.run()
    finally:
        for value, type_ in before:  # the run leaves on them what it found
            if value.type is not type_:
                value.type = type_
    writer = Writer(run, frozen=True)
    is_certain = may_rest_on(run.knowledge)

    def annotate(value: ir.Value) -> None:
        writer.annotate(value)
        if is_certain:
            forget_composed(value)
        elif value.shape is not None and len(value.shape):
            value.shape = ir.Shape([None] * len(value.shape))

    for value in lacking:
        if value in run.knowledge.types:
            completion.complete(value, annotate)
    return run


def may_rest_on(knowledge: Knowledge) -> bool:
    """Return whether a rewrite may rely on inferred sizes.

    It may not if the model contradicts itself, or if a size depends on another one that must not be
    0.
    """
    return not (knowledge.conflicts or knowledge.assumed)


def forget_composed(value: ir.Value, declared: ir.Shape | None = None) -> None:
    """Make the sizes of a value unknown that are computed from names, except `declared` ones."""
    dims = () if value.shape is None else tuple(value.shape)
    old = () if declared is None else tuple(declared)
    kept = [dim if dim in old or not is_composed(dim) else None for dim in dims]
    if any(one is not dim for one, dim in zip(kept, dims, strict=True)):
        value.shape = ir.Shape(kept)


def fix_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Replace symbolic dimensions by fixed sizes in all declared shapes, in place.

    This includes expressions (`2*batch`), in the main graph and in bodies. Nodes do not change.
    Functions have their own dimensions.
    """
    for value in graph_values(model.graph) if dims else ():  # a walk takes a tenth of a lowering
        old = value.shape
        if old is None or old.is_static():
            continue
        declared = [dim if isinstance(dim, int) else dim.value for dim in old]
        sizes = [bind_dim(dim, dims) for dim in declared]
        if sizes != declared:
            value.shape = ir.Shape(sizes, [old.get_denotation(axis) for axis in range(len(old))])


def graph_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph and of the bodies inside, and the outputs of all nodes."""
    yield from graph.inputs
    for node in graph.all_nodes():
        yield from node.outputs
        for _, body in subgraphs(node):
            yield from body.inputs
