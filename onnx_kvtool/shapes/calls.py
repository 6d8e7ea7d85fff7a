"""Calls of model-local functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import onnx_ir as ir

from onnx_kvtool.core.walk import function_path, subgraphs
from onnx_kvtool.guard.exhaustion import MOST_RUN
from onnx_kvtool.ops.traits import WHOLE_TYPES
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.shapes.bodies import Outcome, hand_in
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import Atom, Element, Exprs, Extent
from onnx_kvtool.symbolic.knowledge import Lost
from onnx_kvtool.symbolic.rules.site import Unknown

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext

Made: TypeAlias = "list[tuple[Outcome, IndexMap | None]]"
"""Type, shape and content of each output of a call; only integers have a known content."""


def call(
    run: Forward,
    node: ir.Node,
    function: ir.Function,
    context: GraphContext,
    *,
    is_bound: bool = False,
) -> Sequence[Outcome]:
    """Return the outputs of a call of a function.

    If it `is_bound`, it was made for the attributes of the node, and refers to none.

    Calls with the same arguments share one pass over the body, so that nested functions take no
    exponential time. A result that depends on more (a size that only a run determines, a graph in
    an attribute) is not shared.
    """
    if function in run.calls:
        run.is_circular = True
        circle = f"`{function.domain}::{function.name}` calls itself"
        return [Outcome(None, Unknown("recursive-function", circle))] * len(node.outputs)
    if run.is_too_large:
        size = f"the functions of the model expand to more than {MOST_RUN} nodes"
        return [Outcome(None, Unknown("too-many-calls", size))] * len(node.outputs)
    imports = {**context.imports, **function.opset_imports}
    given = [_given(run, value, context) for value in node.inputs]
    attributes = {} if is_bound else node.attributes
    signature = _signature(run, node, function, attributes, given)
    if signature is not None:
        signature = signature, tuple(imports.items()), context.conditional
    _, made = run.made.get(signature, (node, None)) if signature is not None else (node, None)
    if made is None:
        conflicts = len(run.knowledge.conflicts)
        made = _go_through(run, node, function, context, imports)
        is_plain = not run.is_circular and conflicts == len(run.knowledge.conflicts)
        if signature is not None and is_plain and _rests_on(made, given):
            run.made[signature] = node, made
    for output, (_, content) in zip(node.outputs, made, strict=False):
        if content is not None:
            context.contents.put(output, content)
    return [outcome for outcome, _ in made]


class _Given(NamedTuple):
    """The known facts of an input of a call."""

    type: ir.TypeProtocol | None
    shape: Shape | None
    lost: Lost | None
    content: IndexMap | None

    def atoms(self) -> Iterator[Atom]:
        for expr in (*(self.shape or ()), *_sizes(self.content)):
            yield from expr.atoms()


def _sizes(content: IndexMap | None) -> Exprs:
    return () if content is None else (*content.parts, *(content.shape or ()))


def _given(run: Forward, value: ir.Value | None, context: GraphContext) -> _Given | None:
    """Return the known facts of an input; None if it is absent."""
    if value is None:
        return None
    known = run.knowledge
    type_ = known.types.get(value)
    content = _content(type_, value, context)
    return _Given(type_, known.shapes.get(value), known.lost.get(value), content)


def _content(
    type_: ir.TypeProtocol | None, value: ir.Value, context: GraphContext
) -> IndexMap | None:
    """Return the elements of integers; None for other types."""
    whole = isinstance(type_, ir.TensorType) and type_.dtype in WHOLE_TYPES
    return context.contents.of(value) if whole else None


def _signature(
    run: Forward,
    node: ir.Node,
    function: ir.Function,
    attributes: Mapping[str, ir.Attr],
    given: Sequence[_Given | None],
) -> Hashable | None:
    """Return everything that the result of a call can depend on; None if it cannot be compared."""
    # Types compare as equal although their denotations differ, also inside other types.
    if any(
        g and g.type and (type(g.type) is not ir.TensorType or g.type.denotation) for g in given
    ):
        return None
    if any(a.is_ref() or a.type in _GRAPHS for a in attributes.values()):
        return None
    told = tuple(
        (name, a.type, a.value if a.type in _COMPARED else id(a.value))
        for name, a in attributes.items()
    )
    known = run.knowledge
    state = (known.equalities.learned, len(known.legal), len(known.assumed))
    return function.identifier(), len(node.outputs), told, state, tuple(given)


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_COMPARED = (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING)
"""Attributes that are compared by value, all others by identity."""


def _rests_on(made: Made, given: Sequence[_Given | None]) -> bool:
    """Return whether the result contains no unknown size that each call has of its own."""
    before = {atom for one in given if one is not None for atom in one.atoms()}
    return all(
        atom in before or not isinstance(atom, Extent | Element)
        for outcome, content in made
        for expr in (
            *_sizes(content),
            *(() if isinstance(outcome.shape, Unknown) else outcome.shape),
        )
        for atom in expr.atoms()
    )


def _go_through(
    run: Forward,
    node: ir.Node,
    function: ir.Function,
    context: GraphContext,
    imports: Mapping[str, int],
) -> Made:
    """Infer a copy of the body for one call."""
    try:
        body = function.graph.clone(allow_outer_scope_values=True)
    except (RuntimeError, KeyError, ValueError):  # what onnx_ir 1.1.0 raises depends on the depth
        name = f"the body of `{function.domain}::{function.name}` reads what nothing produces"
        return [(Outcome(None, Unknown("malformed", name)), None)] * len(node.outputs)
    attributes = {**function.attributes, **node.attributes}
    for inner in body:
        _bind(inner, attributes)
    inside = context._replace(
        path=function_path(*function.identifier()),
        imports=imports,
        contents=run.contents(imports.get("", 1)),
        is_main=False,
        in_function=True,
    )
    for index, formal in enumerate(body.inputs):
        actual = given_input(node, index)
        if actual is None:
            for use in tuple(formal.uses()):
                use.node.replace_input_with(use.idx, None)
        else:
            formal.type = run.knowledge.types.get(actual)
            hand_in(run, actual, formal)
            if formal.dtype in WHOLE_TYPES:
                inside.contents.put(formal, context.contents.of(actual))
    run.calls.append(function)
    run.graph(body, inside)
    run.calls.pop()
    made: Made = []
    for result, _ in zip(body.outputs, node.outputs, strict=False):
        shape = run.knowledge.shapes.get(result)
        unknown = Unknown("unknown-input", "", result)
        outcome = Outcome(run.knowledge.types.get(result), unknown if shape is None else shape)
        made.append((outcome, _content(outcome.type, result, inside)))
    return made


def bind_parameters(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> None:
    """Replace references to parameters of a function; remove those without a value."""
    for name, attribute in tuple(node.attributes.items()):
        if not attribute.is_ref():
            continue
        actual = attributes.get(attribute.ref_attr_name or "")
        if actual is None or actual.value is None:
            del node.attributes[name]
        else:
            node.attributes[name] = ir.Attr(name, actual.type, actual.value)


def _bind(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> None:
    """Bind the parameters of a node and of those in its bodies, and forget what they give."""
    bind_parameters(node, attributes)
    for output in node.outputs:
        output.type = output.shape = None
    for _, graph in subgraphs(node):
        for inner in graph:
            _bind(inner, attributes)
