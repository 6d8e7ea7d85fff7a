"""The forward pass: every node once, in order, with all that is known of its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import onnx
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.core.storage import is_misdeclared
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.core.words import counted
from onnx_kvtool.guard.exhaustion import MOST_RUN, expanded_nodes
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.result_types import output_types, planned_types
from onnx_kvtool.ops.schema import op_facts, op_history
from onnx_kvtool.ops.traits import contradiction, dtype_name
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.shapes import calls, onnx_inference
from onnx_kvtool.shapes.bodies import CONTROL, Outcome, run_foreign_bodies
from onnx_kvtool.shapes.reconcile import reconcile
from onnx_kvtool.symbolic.broadcasting import stretched
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.dimensions import (
    HEAVIEST,
    Dims,
    Shape,
    dimensions_in,
    is_invented,
    read_size,
)
from onnx_kvtool.symbolic.expressions import (
    Atom,
    Dimension,
    Expr,
    Exprs,
    Largest,
    Modulo,
    Quotient,
    integer,
)
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.knowledge import Conflict, Knowledge, Lost
from onnx_kvtool.symbolic.rules.contrib import CONTRIB
from onnx_kvtool.symbolic.rules.site import ShapeRule, Shapes, ShapeSite, Unknown
from onnx_kvtool.symbolic.rules.table import OTHER_RULES, shape_rule
from onnx_kvtool.symbolic.simplification import Facts, substitute


def report_wrong_opset(site: ShapeSite) -> int | None:
    """Report that a node needs another opset than the declared one.

    Args:
        site: A node of the default domain that its schema does not allow.

    Returns:
        An opset that has the operator with as many inputs; None if there is none, which is not
        reported.
    """
    node = site.node
    fitting = [
        facts.since_version
        for facts in op_history(node.op_type)
        if not facts.deprecated and facts.max_inputs >= len(node.inputs)
    ]
    if not fitting:
        return None
    found = min((version for version in fitting if version > site.opset), default=fitting[0])
    value = node.outputs[0] if node.outputs else None
    here = op_facts(node.op_type, site.opset)
    gone = here is None or here.deprecated
    has = "has no such operator" if gone else "has fewer inputs"
    site.knowledge.conflicts.append(
        Conflict(
            "wrong-opset",
            site.place.of_value(value),
            f"opset {site.opset}",
            f"opset {found}",
            f"`{node.op_type}` of {counted(len(node.inputs), 'input')} is of opset {found}, "
            f"and opset {site.opset}, which is declared, {has}",
        )
    )
    return found


class InferredIndexMaps(IndexMaps):
    """The contents of integer values, with the shapes that inference has found so far.

    Args:
        opset: Version of the default domain.
        knowledge: Has the shapes.
    """

    def __init__(self, opset: int, knowledge: Knowledge) -> None:
        super().__init__(opset)
        self._knowledge = knowledge

    def _declared(self, value: ir.Value) -> Exprs | None:
        return self._knowledge.shapes.get(value)

    def put(self, value: ir.Value, content: IndexMap) -> None:
        """Set the content of a value, such as the formal input of a function at a call."""
        self._memo[value] = content

    def forget(self, value: ir.Value) -> None:
        """Let the content of a value be computed again."""
        self._memo.pop(value, None)
        self._unrelated.pop(value, None)


class GraphContext(NamedTuple):
    """The context of a graph.

    Attributes:
        path: Its path.
        imports: Version of each domain.
        contents: The contents of integer values.
        is_main: Whether it is the main graph, which onnx's inference covers.
        conditional: Whether it may never run.
        in_function: Whether it is the body of a function, whose values are those of one call.
    """

    path: str
    imports: Mapping[str, int]
    contents: InferredIndexMaps
    is_main: bool = False
    conditional: bool = False
    in_function: bool = False

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return self.imports.get("", 1)

    def body(self, path: str) -> GraphContext:
        """Return the context of a graph inside, which may never run."""
        return self._replace(path=path, is_main=False, conditional=True)


class Forward:
    """One pass over a model.

    Args:
        model: The model. Its values without a type get the inferred one, because the contents of
            integer values are read from there; nothing else changes.
        dims: Values of symbolic dimensions.
        told: The types of the main graph's values that onnx inferred, by name.
        only: The nodes to infer, by their graph; all nodes of a graph that it does not have.

    Attributes:
        knowledge: The found facts.
        values: Every value of the main graph and of bodies, in order, with its place.
        told: As the argument.
        calls: The functions that are being inferred, outermost first.
        made: Results of calls, by `_signature`; each with its node, to keep it alive.
        forms: Standard forms of operators of onnxruntime, by everything that they depend on.
        is_circular: Whether a function calls itself.
        is_too_large: Whether functions expand to too many nodes, so that none is inferred.
    """

    def __init__(
        self,
        model: ir.Model,
        dims: Mapping[str, int],
        told: Mapping[str, onnx.TypeProto],
        only: Mapping[ir.Graph, Collection[ir.Node]] | None = None,
    ) -> None:
        self.model = model
        self.only = only or {}
        self.knowledge = Knowledge()
        self.values: dict[ir.Value, Location] = {}
        self.told = told
        self.calls: list[ir.Function] = []
        self.made: dict[Hashable, tuple[ir.Node, calls.Made]] = {}
        self.is_circular = False
        self.is_too_large = bool(model.functions) and expanded_nodes(model) > MOST_RUN
        self.forms: dict[Hashable, ir.Function | Unknown] = {}
        self._bound: dict[Atom, Expr] = {Dimension(name): integer(n) for name, n in dims.items()}
        self._contents: dict[int, InferredIndexMaps] = {}
        self._names = {
            name
            for value in model.graph.inputs
            for size in self.declared(value) or ()
            if size is not None
            for name in dimensions_in(size)
        }
        self._known: dict[Expr, bool] = {}
        # By identity: most nodes hand on the very shape of an input.
        self._complete: dict[int, Shape] = {}

    def run(self) -> None:
        """Go through the model."""
        # The cache refers to values, and so to the whole previous model.
        stretched.cache_clear()
        graph = self.model.graph
        imports = self.model.opset_imports
        contents = self.contents(imports.get("", 1))
        context = GraphContext(graph_path(graph.name), imports, contents, is_main=True)
        for value in graph.inputs:
            self.declare_input(value, context)
        self.graph(graph, context)

    def is_known(self, size: Expr) -> bool:
        """Return whether a size is a number or an expression over names of the model's inputs."""
        if size.number is not None:
            return True
        if size not in self._known:
            self._known[size] = all(
                isinstance(atom, Largest | Quotient | Modulo)
                or (isinstance(atom, Dimension) and atom.name in self._names)
                for atom in size.atoms()
            )
        return self._known[size]

    def is_complete(self, shape: Shape | Unknown) -> bool:
        """Return whether every size of a shape is a known one of moderate length."""
        if isinstance(shape, Unknown):
            return False
        if id(shape) in self._complete:
            return True
        if not all(size.weight <= HEAVIEST and self.is_known(size) for size in shape):
            return False
        self._complete[id(shape)] = shape
        return True

    def contents(self, opset: int) -> InferredIndexMaps:
        """Return the contents of integer values at an opset."""
        return self._contents.setdefault(opset, InferredIndexMaps(opset, self.knowledge))

    def size(self, text: str) -> Expr:
        """Return the size for a text, with the given values of dimensions."""
        size = read_size(text)
        return substitute(size, {}, Facts(), self._bound) if self._bound else size

    def declared(self, value: ir.Value) -> Sequence[Expr | None] | None:
        """Return the declared shape of a value; None for each undeclared size.

        A name that onnx's inference invented counts only in an input.
        """
        if value.shape is None:
            return None
        made = value.producer() is not None
        return [
            integer(dim)
            if isinstance(dim, int)
            else None
            if dim.value is None or (made and is_invented(dim.value))
            else self.size(dim.value)
            for dim in value.shape
        ]

    def declare_input(self, value: ir.Value, context: GraphContext) -> None:
        """Accept the declaration of an input."""
        place = Location(context.path, value=value.name)
        self.values[value] = place
        if value.type is not None:
            self.knowledge.types[value] = value.type
        declared = self.declared(value)
        if declared is None:
            self.knowledge.lost[value] = Lost(place, "undeclared", "the input declares no shape")
            return
        self.knowledge.shapes[value] = tuple(
            self.knowledge.unknown_size(
                value, axis, Lost(place, "undeclared", f"the input names no size for axis {axis}")
            )
            if size is None
            else size
            for axis, size in enumerate(declared)
        )

    def graph(self, graph: ir.Graph, context: GraphContext) -> None:
        """Infer all values of a graph whose inputs are known."""
        only = self.only.get(graph)
        for value in graph.initializers.values():
            if only is not None and not any(
                use.node in only or use.node.graph is not graph for use in value.uses()
            ):
                continue
            if not context.in_function and is_misdeclared(value):
                self._misdeclared(value, Location(context.path, value=value.name))
            self._initializer(value)
        left = len(graph) if only is None else len(only)
        for index, node in enumerate(graph):
            if not left:
                break
            if only is None or node in only:
                left -= 1
                self.node(node, index, context)

    def _misdeclared(self, value: ir.Value, place: Location) -> None:
        """Report a wrongly declared initializer; later nodes are judged by its data."""
        tensor, message = value.const_value, f"`{value.name}` {contradiction(value)}"
        assert tensor is not None
        is_other = value.dtype is not None and value.dtype != tensor.dtype
        declared, found = (
            dtype_name(one.dtype) if is_other and one.dtype is not None else _dims(one.shape)
            for one in (value, tensor)
        )
        conflict = Conflict("initializer", place, declared, found, message)
        self.knowledge.conflicts.append(conflict)

    def _initializer(self, value: ir.Value) -> None:
        tensor = value.const_value
        if tensor is None or (value.is_graph_input() and value in self.knowledge.shapes):
            return
        self.knowledge.types[value] = ir.TensorType(tensor.dtype)
        self.knowledge.shapes[value] = tuple(integer(n) for n in tensor.shape.numpy())
        if value.type is None:
            value.type = ir.TensorType(tensor.dtype)

    def node(self, node: ir.Node, index: int, context: GraphContext) -> None:
        """Infer the outputs of a node."""
        place = Location.of(context.path, node, index)
        outcomes = self.outcomes(node, place, context)
        nothing = itertools.repeat(Outcome(None, _NOTHING))
        for value, outcome in zip(node.outputs, itertools.chain(outcomes, nothing), strict=False):
            reconcile(self, value, outcome, place, context)

    def outcomes(self, node: ir.Node, place: Location, context: GraphContext) -> Sequence[Outcome]:
        """Infer each output of a node."""
        if (function := self.model.functions.get(node.op_identifier())) is not None:
            return calls.call(self, node, function, context)
        if node.domain == "" and (flow := CONTROL.get(node.op_type)) is not None:
            return flow(self, node, place, context)
        if node.domain != "" and node.attributes.data:
            run_foreign_bodies(self, node, place, context)
        if not node.outputs:
            return []
        opset = context.opset if node.version is None else node.version
        knowledge = self.knowledge
        site = ShapeSite(node, opset, place, knowledge, context.contents.of, context.conditional)
        contrib_schema = contrib_facts(node.domain, node.op_type)
        contrib = CONTRIB.get(node.op_type) if contrib_schema else None
        if contrib is not None:
            plan = (contrib.types.get(index, (0,)) for index in range(len(node.outputs)))
            types = planned_types(node, plan, knowledge.types.get)
            return _paired(types, _guarded(site, contrib.rule, node.outputs))
        if node.domain != "" and contrib_schema:
            from onnx_kvtool.shapes.standard_forms import form_of

            try:
                form = form_of(self, node, contrib_schema)
            except Unknown as error:
                return [Outcome(None, error)] * len(node.outputs)
            return calls.call(self, node, form, context, is_bound=True)
        if node.domain != "":  # another one of ONNX
            opset = node.version or context.imports.get(node.domain, 1)
            site = replace(site, opset=opset)
        facts = op_facts(node.op_type, opset, node.domain)
        if facts is None or (facts.deprecated and node.domain == ""):
            fitting = None if node.domain else report_wrong_opset(site)
            if fitting is None:
                why = Unknown("unknown-operator", f"`{operator_label(node)}` is unknown")
                return [Outcome(None, why)] * len(node.outputs)
            opset, site = fitting, replace(site, opset=fitting)
        types = output_types(node, opset, knowledge.types.get)
        other = OTHER_RULES.get(f"{node.domain}::{node.op_type}")
        rule = other if node.domain else shape_rule(node.op_type)
        if rule is None:
            return _by_onnx(site, types)
        shapes = _guarded(site, rule, node.outputs)
        if any(isinstance(shape, Unknown) and shape.code == "no-rule" for shape in shapes):
            return _by_onnx(site, types)
        if None in types and not context.is_main:
            told = _by_onnx(site, types)
            types = [one or other.type for one, other in zip(types, told, strict=False)]
        return _paired(types, shapes)


_NOTHING = Unknown("no-rule", "kvtool has no rule for this output")


def _dims(shape: ir.Shape | ir.ShapeProtocol | None) -> Dims:
    return tuple(dim if isinstance(dim, int) else dim.value for dim in shape or ())


def _paired(types: Iterable[ir.TypeProtocol | None], shapes: Shapes) -> list[Outcome]:
    pairs = itertools.zip_longest(types, shapes)
    return [Outcome(type_, _NOTHING if shape is None else shape) for type_, shape in pairs]


def _guarded(site: ShapeSite, rule: ShapeRule, outputs: Sequence[ir.Value]) -> Shapes:
    """Return the shapes that a rule gives, or for each output why it gives none."""
    try:
        return rule(site)
    except Unknown as error:
        return [error] * len(outputs)
    except MalformedNode as error:
        if error.code == "too-many-inputs":
            report_wrong_opset(site)
        return [Unknown("malformed", error.message)] * len(outputs)


def _by_onnx(site: ShapeSite, types: Sequence[ir.TypeProtocol | None]) -> list[Outcome]:
    try:
        found = onnx_inference.of_node(site)
    except Unknown as error:
        return [Outcome(type_, error) for type_ in types]
    pairs = zip(types, found, strict=False)
    return [Outcome(type_ or onnx_type, shape) for type_, (onnx_type, shape) in pairs]
