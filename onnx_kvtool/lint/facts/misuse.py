"""Violations of ONNX schemas, found in one walk over all nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location, Severity
from onnx_kvtool.core.words import counted, did_you_mean
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.operands import IN_DEFAULT_DOMAIN, runtime_words
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.legality import Problem, examine
from onnx_kvtool.ops.operators import terms
from onnx_kvtool.ops.schema import (
    DOMAINS,
    STRINGS,
    OpFacts,
    newest_of,
    op_facts,
    operators,
    signature,
    tensor_type,
    type_name,
    unlisted,
)
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import dims_of


class Misuse(NamedTuple):
    """A violation of a schema by a node.

    Attributes:
        kind: What it is: a kind of `examine`, or one that is found here only.
        location: The node, and the value.
        text: One sentence without a full stop.
        help: What to do about it.
        severity: None for that of the rule.
    """

    kind: str
    location: Location
    text: str
    help: str | None = None
    severity: Severity | None = None


def misuses(context: Context) -> Iterator[Misuse]:
    """Yield each use of an operator that its schema does not allow.

    Of nodes of domains that ONNX does not define, and of calls of model-local functions, only a
    missing import counts. Rules about TensorScatter and the scatters report those operators.
    """
    functions = {(f.domain, f.name) for f in context.model.functions.values()}
    unimported: dict[tuple[int, str], list[Site]] = {}
    unknown: dict[tuple[int, str], list[Site]] = {}
    sound: set[Hashable] = set()
    for site in context.sites:
        node = site.node
        if site.opset is None:
            unimported.setdefault((id(site.root), node.domain), []).append(site)
        elif node.domain in DOMAINS and (
            not functions or (node.domain, node.op_type) not in functions
        ):
            facts = op_facts(node.op_type, site.opset, node.domain)
            if facts is not None and not facts.deprecated:
                key = (site.opset, signature(node))
                if key not in sound:
                    found = tuple(_node(site, site.opset, facts))
                    yield from found
                    if not found and Trait.UPDATES not in traits(node):
                        # Another rule reports an update if a certain input has the value's name.
                        sound.add(key)
            elif facts is None and not node.domain and node.op_type in IN_DEFAULT_DOMAIN:
                unknown.setdefault((id(site.root), node.op_type), []).append(site)
            elif node.domain or node.op_type != "TensorScatter":  # KV012
                yield _unknown(site, site.opset, facts)
            if facts is not None:
                yield from _axes(site)
        elif node.attributes.data and (facts := contrib_facts(node.domain, node.op_type)):
            yield from _contrib_attributes(site, facts, context)
    for sites in unknown.values():
        yield _of_onnxruntime(sites, context)
    is_reported = any(d.code == "missing-opset-import" for d in context.origin.defects)
    for (_, domain), sites in unimported.items():
        if domain or not is_reported:
            first, name = sites[0], domain or "ai.onnx"
            owner = context.owner(first.root)
            yield Misuse(
                "unimported-domain",
                first.location(),
                f"the {owner} imports no version of the domain `{name}` of the operator"
                + _more(sites),
                f"add an opset import of `{name}` to the {owner}",
            )


def _node(site: Site, opset: int, facts: OpFacts) -> Iterator[Misuse]:
    node = site.node
    for problem in examine(node, opset):
        if not _is_said_elsewhere(site, problem):
            yield _worded(site, problem, facts)
    if len(node.inputs) < facts.min_inputs and facts.inputs[-1].variadic:
        yield Misuse(
            "wrong-arity",
            site.location(),
            f"`{node.op_type}` has {counted(len(node.inputs), 'input')}, expected at least "
            f"{facts.min_inputs}",
        )
    for index, value in enumerate(node.inputs):
        formal = facts.input(index)
        if value is None and formal is not None and formal.variadic:
            yield Misuse(
                "missing-input",
                site.location(),
                f"input {index}, one of `{formal.name}`, of `{node.op_type}` has an empty name",
                "connect the value, or leave the input out",
            )
    for index, output in enumerate(node.outputs):
        formal = facts.output(index)
        if not output.name and formal is not None and not (formal.optional or formal.variadic):
            yield Misuse(
                "missing-output",
                site.location(),
                f"output `{formal.name}` of `{node.op_type}` is not optional and has no name",
                "give the value a name, even if nothing reads it",
            )
    if node.attributes.data:
        yield from _values(site, facts)
    if node.op_type != "TensorScatter":
        yield from _conflicts(site, facts)


_COUNTED = (
    "CenterCropPad",
    "DequantizeLinear",
    "GatherElements",
    "LayerNormalization",
    "LpNormalization",
    "MeanVarianceNormalization",
    "QuantizeLinear",
    "RMSNormalization",
)
"""Operators whose `axis` or `axes` refer to the first input; onnx does not check them."""


def _axes(site: Site) -> Iterator[Misuse]:
    """Yield axes that the first input does not have, a bad `perm` and a bad `equation`."""
    node = site.node
    if node.op_type == "Einsum":
        equation = node.attributes.get("equation")
        if equation is not None and isinstance(equation.value, str):
            try:
                terms(equation.value, len(node.inputs))
            except MalformedNode as error:
                yield Misuse("attribute-value", site.location(), str(error))
    if node.op_type == "Transpose":
        perm = _integers(node, "perm")
        if sorted(perm) != list(range(len(perm))):
            yield Misuse(
                "attribute-value",
                site.location(),
                f"attribute `perm` is {list(perm)}, expected each of 0 to {len(perm) - 1} once",
            )
    if node.op_type not in _COUNTED or node.inputs[0] is None or node.inputs[0].shape is None:
        return
    rank = len(node.inputs[0].shape)
    if node.op_type in ("DequantizeLinear", "QuantizeLinear") and (
        rank == 0 or all(size == 1 for size in dims_of(node.inputs[1]) or ())
    ):
        return  # one scale for the whole tensor: the axis counts nothing
    for axis in (*_integers(node, "axes"), *_integers(node, "axis")):
        if not -rank <= axis < rank:
            yield Misuse(
                "attribute-value",
                site.location(),
                f"axis {axis} is out of range: `{node.inputs[0].name}` has rank {rank}, expected "
                f"{-rank} to {rank - 1}",
            )


def _integers(node: ir.Node, name: str) -> tuple[int, ...]:
    """Return the integers of an attribute; none where it is absent, or not integers."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return ()
    if attribute.type == ir.AttributeType.INTS:
        return tuple(attribute.value)
    return (attribute.value,) if attribute.type == ir.AttributeType.INT else ()


def _contrib_attributes(site: Site, facts: OpFacts, context: Context) -> Iterator[Misuse]:
    """Yield attributes that an operator of onnxruntime does not have, in the release known here.

    A later release may have them, so this is an error only if a release is named.
    """
    node = site.node
    is_named = any(target.release.runtime == "onnxruntime" for target in context.targets)
    for name in node.attributes:
        if name not in facts.attributes:
            yield Misuse(
                "unknown-attribute",
                site.location(),
                f"`{node.op_type}` of `{node.domain}` has no attribute `{name}`",
                did_you_mean(name, facts.attributes, "leave the attribute out"),
                None if is_named else "warning",
            )


def _is_said_elsewhere(site: Site, problem: Problem) -> bool:
    """Return whether another rule reports it, or onnx accepts it."""
    node = site.node
    if problem.kind == "unknown-attribute":
        return problem.subject.startswith("__")  # private attributes for onnx's checker
    if problem.kind != "element-type":
        return False
    if node.op_type == "TensorScatter":  # KV010
        return len(node.inputs) > 2 and _is(node.inputs[2], problem.subject)
    if Trait.UPDATES in traits(node):  # KV206
        moved = (*node.inputs[:1], *node.inputs[2:], *node.outputs)
        return any(_is(value, problem.subject) for value in moved)
    return False


def _is(value: ir.Value | None, name: str) -> bool:
    return value is not None and value.name == name


def _worded(site: Site, problem: Problem, facts: OpFacts) -> Misuse:
    op, name = site.node.op_type, problem.subject
    value = name if problem.kind == "element-type" else None
    help: str | None = None
    text = problem.text
    if problem.kind == "unknown-attribute":
        domain = site.node.domain
        versions = ((v, op_facts(op, v, domain)) for v in range(1, newest_of(domain) + 1))
        came = next((v for v, known in versions if known and name in known.attributes), None)
        if came is not None:
            text += f"; it came with opset {came}"
            help = f"raise the opset import to {came}, or leave the attribute out"
        else:
            help = did_you_mean(name, facts.attributes, "leave the attribute out")
    elif problem.kind == "attribute-type":
        expected = ir.AttributeType(facts.attributes[name].type).name
        text += f", expected {expected}"
    elif problem.kind == "missing-attribute":
        text = f"attribute `{name}` of `{op}` is required at opset {site.opset} and missing"
        help = "write the attribute; it has no default"
    elif problem.kind == "attribute-value":
        text += f", the node stands at opset {site.opset}"
        help = "raise the opset import, or write the node without it"
    elif problem.kind == "missing-input":
        position = next(i for i, formal in enumerate(facts.inputs) if formal.name == name)
        given = len(site.node.inputs)
        text = f"input {position}, `{name}`, of `{op}` is required and " + (
            "has an empty name"
            if position < given
            else f"absent: the node has {counted(given, 'input')}"
        )
        help = "connect the value; only optional inputs may be omitted"
    elif problem.kind == "element-type":
        help = "insert a Cast to a type that the operator takes"
    return Misuse(problem.kind, site.location(value), text, help)


def _unknown(site: Site, opset: int, facts: OpFacts | None) -> Misuse:
    op, domain = site.node.op_type, site.node.domain
    owner = f"is used at opset {opset}"
    if facts is not None:
        return Misuse(
            "deprecated-operator",
            site.location(),
            f"`{op}` was removed in opset {facts.since_version} and {owner}",
            "write it with the operators that replaced it, or lower the opset import",
        )
    newest = newest_of(domain)
    later = range(max(opset, 0) + 1, newest + 1)
    first = next((v for v in later if op_facts(op, v, domain) is not None), None)
    if first is not None:
        return Misuse(
            "unknown-operator",
            site.location(),
            f"`{op}` came with opset {first} and {owner}",
            f"raise the opset import to {first}, or replace the operator",
        )
    return Misuse(
        "unknown-operator",
        site.location(),
        f"{f'domain `{domain}`' if domain else 'the default domain'} has no operator `{op}` at any "
        f"opset up to {newest}",
        did_you_mean(op, sorted(operators(domain)), "put it into its own domain"),
    )


def _of_onnxruntime(sites: list[Site], context: Context) -> Misuse:
    """Return the misuse of an operator of onnxruntime in the default domain.

    It is no error if onnxruntime runs the model.
    """
    first, op = sites[0], sites[0].node.op_type
    others = [t for t in context.targets if t.release.runtime != "onnxruntime"]
    refused = f"; {runtime_words(others[0])} does not run it" if others else ""
    remedy = "export the model without that optimisation"
    if contrib_facts("", op) is not None:
        remedy = "write it with operators of ONNX: `kvtool lower --contrib standard`"
    return Misuse(
        "unknown-operator",
        first.location(),
        f"`{op}` is no operator of ONNX at opset {first.opset}: {IN_DEFAULT_DOMAIN[op]}{refused}"
        + _more(sites),
        remedy if others else f"use the model with onnxruntime only, or {remedy}",
        None if others else "info",
    )


def _more(sites: list[Site]) -> str:
    rest = len(sites) - 1
    return f" ({counted(rest, 'more node')})" if rest else ""


def _values(site: Site, facts: OpFacts) -> Iterator[Misuse]:
    """Yield strings and types of attributes that are legal at no opset."""
    node = site.node
    for name, text in unlisted(node):
        if name in facts.attributes:
            allowed = sorted(STRINGS[node.op_type, name])
            yield Misuse(
                "attribute-value",
                site.location(),
                f"attribute `{name}` is `{text}`, expected one of "
                + ", ".join(f"`{word}`" for word in allowed),
                did_you_mean(text, allowed),
            )
    source = traits(node).element_type
    if source is None or source.attribute not in facts.attributes:
        return
    given = node.attributes.get(source.attribute)
    if given is not None and not given.is_ref() and isinstance(given.value, int):
        name, number = source.attribute, given.value
        try:
            dtype = ir.DataType(number)
        except ValueError:
            dtype = ir.DataType.UNDEFINED
        if dtype == ir.DataType.UNDEFINED:
            text = f"attribute `{name}` is {number}, which is no element type"
        elif tensor_type(dtype) not in facts.outputs[0].types:
            text = (
                f"attribute `{name}` is {number} ({dtype.name}), a type that `{node.op_type}` does "
                f"not give at opset {site.opset}"
            )
        else:
            return
        yield Misuse("attribute-value", site.location(), text)


def _conflicts(site: Site, facts: OpFacts) -> Iterator[Misuse]:
    """Yield values that share a type parameter and differ in type."""
    node = site.node
    bound: dict[str, tuple[ir.Value, str]] = {}
    for kind, operands, formals in (
        ("input", node.inputs, facts.input),
        ("output", node.outputs, facts.output),
    ):
        for index, value in enumerate(operands):
            formal = formals(index)
            given = None if value is None else type_name(value)
            if value is None or formal is None or given is None or not formal.homogeneous:
                continue
            if given not in formal.types:
                continue  # ON607 reports it
            first, expected = bound.setdefault(formal.type_parameter, (value, given))
            if given != expected:
                yield Misuse(
                    "type-conflict",
                    site.location(value),
                    f"{kind} `{value.name}` is {given}, but `{first.name}` is {expected}: "
                    f"`{node.op_type}` wants one type {formal.type_parameter} for both",
                    "insert a Cast"
                    if kind == "input"
                    else "declare the result with the type that the operator yields",
                )
