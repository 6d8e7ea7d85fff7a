"""The facts of a model that rules query."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache, find_caches
from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import (
    function_path,
    graph_path,
    graphs,
    step_path,
    subgraphs,
    tensors,
    values,
)
from onnx_kvtool.model_io.model import Origin, origin
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dimensions import bind_dim
from onnx_kvtool.targets.target import Target

if TYPE_CHECKING:
    from onnx_kvtool.lint.facts.misuse import Misuse
    from onnx_kvtool.shapes.annotations import Annotations
    from onnx_kvtool.symbolic.index_maps import IndexMaps


View = TypeVar("View", bound=NodeView)
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Site:
    """A node and its place.

    Attributes:
        node: The node.
        path: Path of the graph.
        index: Its position there.
        opset: Version of its domain that is imported there; None when none is.
        root: The main graph, or the graph of the function around the node.
    """

    node: ir.Node
    path: str
    index: int
    opset: int | None
    root: ir.Graph

    def location(self, value: ir.Value | str | None = None) -> Location:
        """Return the place of the node, and of one of its values."""
        name = value.name if isinstance(value, ir.Value) else value
        return Location.of(self.path, self.node, self.index, name)

    def view(self, kind: type[View]) -> View | None:
        """Return the view of the node; None if its schema does not allow the node.

        The rules that check nodes against their schemas report what is wrong then.
        """
        if self.opset is None:
            return None
        try:
            return kind(self.node, self.opset)
        except MalformedNode:
            return None


class Context:
    """A model and its facts; each is computed on first use.

    Attributes:
        model: The model, with inferred types and shapes on its values.
        targets: Releases of runtimes that must run it.
        inferred: The result of inference.
        folder: Folds small integer values.
    """

    def __init__(self, model: ir.Model, targets: Sequence[Target], inferred: Annotations) -> None:
        self.model = model
        self.targets = tuple(targets)
        self.inferred = inferred
        self.folder = ConstantFolder()
        self._maps: dict[int, IndexMaps] = {}
        self._kept: dict[Hashable, object] = {}

    @property
    def origin(self) -> Origin:
        """Where the model came from, and its defects there."""
        return origin(self.model)

    @functools.cached_property
    def roots(self) -> tuple[tuple[str, ir.Graph, dict[str, int]], ...]:
        """The main graph and that of each function, with its path and its opset imports."""
        model = self.model
        main = graph_path(model.graph.name), model.graph, model.opset_imports
        functions = model.functions.values()
        return main, *(
            (function_path(*f.identifier()), f.graph, f.opset_imports) for f in functions
        )

    def place(self, path: str, graph: ir.Graph) -> Location:
        """Return the place of one of the `roots`; that of the model for its main graph."""
        return Location() if graph is self.model.graph else Location(path)

    def owner(self, graph: ir.Graph) -> str:
        """Return what one of the `roots` belongs to: `model` or `function`."""
        return "model" if graph is self.model.graph else "function"

    @functools.cached_property
    def outputs(self) -> dict[str | None, ir.Value]:
        """The outputs of the model by name."""
        return {value.name: value for value in self.model.graph.outputs}

    def is_fed(self, value: ir.Value | None) -> bool:
        """Return whether a value is an input of the model."""
        return value is not None and value.is_graph_input() and value.graph is self.model.graph

    @functools.cached_property
    def _declared(self) -> dict[ir.Value, tuple[ir.TypeProtocol | None, ir.Shape | None]]:
        return {value: (type_, shape) for value, type_, shape in self.inferred.added}

    def declared(self, value: ir.Value) -> tuple[ir.TypeProtocol | None, ir.Shape | None]:
        """Return type and shape of a value in the file."""
        return self._declared.get(value, (value.type, value.shape))

    @functools.cached_property
    def caches(self) -> tuple[Cache, ...]:
        """The cache table."""
        return tuple(find_caches(self.model))

    @functools.cached_property
    def scatters(self) -> tuple[Cache, ...]:
        """The caches that a TensorScatter updates."""
        return tuple(cache for cache in self.caches if cache.kind == "tensor_scatter")

    @functools.cached_property
    def tensors(self) -> tuple[tuple[Location, ir.TensorProtocol], ...]:
        """Every tensor that the model holds, with its place; their values are not touched."""
        return tuple(tensors(self.model))

    @functools.cached_property
    def external_tensors(self) -> tuple[tuple[Location, ir.ExternalTensor], ...]:
        """The tensors whose values lie in another file."""
        return tuple((p, t) for p, t in self.tensors if isinstance(t, ir.ExternalTensor))

    @functools.cached_property
    def graphs(self) -> tuple[tuple[str, ir.Graph], ...]:
        """Every graph of the model with its path: the main graph, bodies, functions."""
        return tuple(graphs(self.model))

    @functools.cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every node of the model, those of bodies and functions included, each once."""
        return tuple(
            site
            for path, graph, opsets in self.roots
            for site in _sites(graph, path, graph, opsets)
        )

    def sites_of(self, *op_types: str) -> list[Site]:
        """Return the nodes of operators of these names in any domain, in the order of `sites`."""
        index = self._sites_by_op_type
        found = [entry for op_type in dict.fromkeys(op_types) for entry in index.get(op_type, ())]
        return [site for _, site in sorted(found, key=operator.itemgetter(0))]

    def views(self, kind: type[View]) -> Iterator[tuple[Site, View]]:
        """Yield the nodes of an operator of ONNX that its schema allows, with their views."""
        for site in self.sites_of(kind.__name__):
            view = None if site.node.domain else site.view(kind)
            if view is not None:
                yield site, view

    @functools.cached_property
    def _sites_by_op_type(self) -> Mapping[str, Sequence[tuple[int, Site]]]:
        found: dict[str, list[tuple[int, Site]]] = {}
        for entry in enumerate(self.sites):
            found.setdefault(entry[1].node.op_type, []).append(entry)
        return found

    @functools.cached_property
    def misuses(self) -> Mapping[str, Sequence[Misuse]]:
        """The violations of schemas by nodes, by kind, in the order of the nodes."""
        from onnx_kvtool.lint.facts.misuse import misuses

        found: dict[str, list[Misuse]] = {}
        for misuse in misuses(self):
            found.setdefault(misuse.kind, []).append(misuse)
        return found

    def once(self, key: Hashable, compute: Callable[[], Fact]) -> Fact:
        """Return the result of `compute`, cached under this key."""
        if key not in self._kept:
            self._kept[key] = compute()
        return cast(Fact, self._kept[key])

    def index_maps(self, site: Site) -> IndexMaps:
        """Return the index maps of the graph or function around a node."""
        key = id(site.root)
        if key not in self._maps:
            from onnx_kvtool.symbolic.index_maps import IndexMaps

            opsets = next(opsets for _, graph, opsets in self.roots if graph is site.root)
            self._maps[key] = IndexMaps(opsets.get("", 1))
        return self._maps[key]


def _sites(graph: ir.Graph, path: str, root: ir.Graph, opsets: dict[str, int]) -> Iterator[Site]:
    for index, node in enumerate(graph):
        yield Site(node, path, index, opsets.get(node.domain), root)
        if node.attributes.data:
            for name, body in subgraphs(node):
                yield from _sites(body, step_path(path, node.name, index, name), root, opsets)


@contextlib.contextmanager
def bound(model: ir.Model, dims: Mapping[str, int]) -> Iterator[None]:
    """Replace symbolic dimensions by fixed sizes in all shapes, within the block.

    After the block, values have their former shape, unless something else has changed it.
    """
    changed: list[tuple[ir.Value, ir.Shape, ir.Shape]] = []
    for value in values(model) if dims else ():
        if (before := value.shape) is None:
            continue
        found = [d.value if isinstance(d, ir.SymbolicDim) else d for d in before]
        sizes = [bind_dim(d, dims) for d in found]
        if sizes != found:
            names = [before.get_denotation(i) for i in range(len(before))]
            value.shape = ir.Shape(sizes, denotations=names)
            changed.append((value, before, value.shape))
    try:
        yield
    finally:
        for value, before, during in changed:
            if value.shape is during:
                value.shape = before
