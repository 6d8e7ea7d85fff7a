"""Which outputs of a model hold no result of floating-point arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.element_type import given_type
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.runtime.inputs.flow import is_default

__all__ = ["moved_outputs"]

_MOST = 1_000_000
"""Nodes that are visited, each as often as its function is called with other arguments; a model
with more is left unjudged."""

_Known = tuple[tuple[bool, bool], ...]
"""Of each argument of a call: whether it is exact, and whether it holds no floats."""

_DEEPEST = 100
"""Nested calls and bodies; a function that calls itself has no end."""


def moved_outputs(model: ir.Model) -> frozenset[str]:
    """Return the outputs that any right evaluation of `model` gives with the same bits.

    These are outputs that are computed from inputs and constants by moving elements, by integer
    and boolean arithmetic and by comparisons only. Everything else may differ by rounding between
    two equal models. What is not known (an operator of another domain, a value without a type)
    counts as rounded.
    """
    walk = _Walk(model, _Budget(_MOST))
    walk.exact.update(id(value) for value in model.graph.inputs)
    try:
        walk.graph(model.graph)
    except _Exhausted:
        return frozenset()
    return frozenset(
        value.name for value in model.graph.outputs if value.name and id(value) in walk.exact
    )


class _Exhausted(Exception):
    """The budget is used up."""


class _Budget:
    """Counts visits of nodes, over all nested calls; also bounds functions that call themselves.

    Attributes:
        depth: Nested calls and bodies that the walk is in.
        judged: Which outputs of a function are exact, by the function and what is known of its
            arguments: functions that call each other twice would take forever otherwise.
    """

    def __init__(self, left: int) -> None:
        self._left = left
        self.depth = 0
        self.judged: dict[tuple[ir.OperatorIdentifier, _Known], tuple[bool, ...]] = {}

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0 or self.depth > _DEEPEST:
            raise _Exhausted


class _Walk:
    """One pass in topological order.

    Attributes:
        exact: Identities of the values that hold no rounded result.
        discrete: Identities of the values that hold integers, booleans or strings.
    """

    def __init__(self, model: ir.Model, budget: _Budget) -> None:
        self._model = model
        self._budget = budget
        self.exact: set[int] = set()
        self.discrete: set[int] = set()

    def graph(self, graph: ir.Graph | ir.Function) -> None:
        if isinstance(graph, ir.Graph):
            self.exact.update(id(value) for value in graph.initializers.values())
        for node in graph:
            self._node(node)

    def _node(self, node: ir.Node) -> None:
        self._budget.spend()
        inputs = [value for value in node.inputs if value is not None]
        is_exact = all(id(value) in self.exact for value in inputs)
        if (function := self._model.functions.get(node.op_identifier())) is not None:
            self._call(node, function)
            return
        bodies = [body for _, body in subgraphs(node)]
        if bodies:
            self._bodies(node, bodies, is_exact)
            return
        if not is_default(node) or Trait.RANDOM in traits(node):
            return
        is_discrete = self._is_discrete(node, inputs)
        if is_discrete:
            self.discrete.update(id(value) for value in node.outputs)
        without_floats = is_discrete and all(self._holds_no_floats(value) for value in inputs)
        is_faithful = without_floats or Trait.DECIDES in traits(node) or _only_moves(node)
        if Trait.READS_SHAPE in traits(node) or (is_exact and is_faithful):
            self.exact.update(id(value) for value in node.outputs)

    def _holds_no_floats(self, value: ir.Value) -> bool:
        return id(value) in self.discrete or _is_discrete_type(value.dtype)

    def _is_discrete(self, node: ir.Node, inputs: Iterable[ir.Value]) -> bool:
        """Return whether the outputs certainly hold no floats."""
        kinds = traits(node)
        if Trait.GIVES_SIZES in kinds:
            return True
        dtypes = [value.dtype for value in node.outputs]
        if None not in dtypes:
            return all(_is_discrete_type(dtype) for dtype in dtypes)
        if kinds.element_type is not None:
            given = given_type(node)
            if given is None or isinstance(given, ir.DataType):
                return _is_discrete_type(given)
            value = node.inputs[given] if given < len(node.inputs) else None
            return value is not None and self._holds_no_floats(value)
        if Trait.CONVERTS in kinds:
            return False
        if Trait.DECIDES in kinds:
            return True
        return bool(inputs) and all(self._holds_no_floats(value) for value in inputs)

    def _call(self, node: ir.Node, function: ir.Function) -> None:
        """Judge the outputs of a call by the body, with what is known of the arguments."""
        known = tuple(
            (
                argument is None or id(argument) in self.exact,
                argument is not None and self._holds_no_floats(argument),
            )
            for argument in node.inputs
        )
        key = (node.op_identifier(), known)
        if (exact := self._budget.judged.get(key)) is None:
            exact = self._budget.judged[key] = self._judge(function, known)
        for is_exact, value in zip(exact, node.outputs, strict=False):
            if is_exact:
                self.exact.add(id(value))

    def _judge(self, function: ir.Function, known: _Known) -> tuple[bool, ...]:
        """Return which outputs of a function are exact, by what is known of its arguments."""
        body = _Walk(self._model, self._budget)
        for (is_exact, is_discrete), parameter in zip(known, function.inputs, strict=False):
            if is_exact:
                body.exact.add(id(parameter))
            if is_discrete:
                body.discrete.add(id(parameter))
        self._budget.depth += 1
        body.graph(function)
        self._budget.depth -= 1
        return tuple(id(result) in body.exact for result in function.outputs)

    def _bodies(self, node: ir.Node, bodies: Sequence[ir.Graph], is_exact: bool) -> None:
        """Judge the outputs of If, Loop or Scan: exact only if everything in the bodies is."""
        self._budget.depth += 1
        for body in bodies:
            self.exact.update(id(value) for value in body.inputs)
            self.graph(body)
        self._budget.depth -= 1
        if is_exact and all(id(v) in self.exact for body in bodies for v in body.outputs):
            self.exact.update(id(value) for value in node.outputs)


def _only_moves(node: ir.Node) -> bool:
    """Return whether a node puts elements elsewhere; a cast rounds, but in one way only."""
    if not traits(node).any(Trait.MOVES, Trait.FILLS, Trait.CASTS):
        return False
    # The default of every version is `none`; a reference is left to the caller of the function.
    reduction = node.attributes.get("reduction")
    return reduction is None or (not reduction.is_ref() and reduction.value == "none")


def _is_discrete_type(dtype: ir.DataType | None) -> bool:
    return dtype is not None and (
        dtype.is_integer() or dtype in (ir.DataType.BOOL, ir.DataType.STRING)
    )
