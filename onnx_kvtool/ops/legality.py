"""Is this node legal at another opset, and what must change so that it means the same there?

The answer is derived from `onnx.defs` by comparing the two versions of the operator, and from a
short list of changes of meaning that schemas do not show.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.ops.changes import VALUE_LIMITS, changed_meaning
from onnx_kvtool.ops.joined_types import clashing_types
from onnx_kvtool.ops.schema import AttributeFacts, AttributeValue, OpFacts, op_facts, type_name
from onnx_kvtool.ops.upgrade_changes import changed_by_upgrade

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Fit", "Problem", "examine", "fit"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a node cannot stand at an opset as it is.

    Attributes:
        code: Stable identifier (`new-operator`, `element-type`, ...).
        text: One sentence without a full stop.
        kind: What `examine` found, more exactly than the code; "" for what `fit` finds.
        subject: Name of the attribute, the formal input or the value that is meant; "" for the
            node as a whole.
        help: What a user can do about it; None where that depends on who asks.
    """

    code: str
    text: str
    kind: str = field(default="", compare=False)
    subject: str = field(default="", compare=False)
    help: str | None = field(default=None, compare=False)


@dataclass(slots=True)
class Fit:
    """How a node of one opset fits another.

    Attributes:
        problems: Why it does not; empty when it does, after the changes below.
        drop: Attributes to remove, because the other version lacks them and they are at their
            default.
        add: Attributes to write out, because their default differs between the versions.
        as_attribute: Inputs that are attributes in the other version: (index, name).
    """

    problems: list[Problem] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    add: dict[str, AttributeValue] = field(default_factory=dict)
    as_attribute: list[tuple[int, str]] = field(default_factory=list)


_NOTHING = Fit()


def fit(node: ir.Node, source: int, target: int) -> Fit:
    """Compare a node of the default domain, written for opset `source`, with opset `target`.

    Element types that are unknown are a problem only where the two versions differ in types.

    Args:
        node: The node; it is not changed.
        source: The opset it was written for.
        target: The opset it shall stand at; may be higher or lower.
    """
    old, new = op_facts(node.op_type, source), op_facts(node.op_type, target)
    if old is None:
        text = f"`{node.op_type}` is no operator of the default domain at opset {source}"
        return Fit([Problem("unknown-operator", text)])
    if new is None:
        text = f"`{node.op_type}` came with opset {_first(old)}"
        return Fit([Problem("new-operator", text)])
    if old.since_version == new.since_version:
        return _NOTHING
    result = Fit()
    if new.deprecated:
        text = f"`{node.op_type}` is gone since opset {new.since_version}"
        result.problems.append(Problem("deprecated-operator", text))
        return result
    is_upgrade = new.since_version > old.since_version
    if (
        change := (changed_by_upgrade if is_upgrade else changed_meaning)(node, old, new)
    ) is not None:
        result.problems.append(Problem("changed-meaning", change))
    _fit_attributes(node, old, new, result)
    _fit_inputs(node, old, new, result)
    result.problems.extend(_values(node, new, target))
    result.problems.extend(_types(node, new, target, old if is_upgrade else None))
    clashes = clashing_types(node, old, new)
    result.problems.extend(
        Problem("element-type", f"{c} {target}", "element-type") for c in clashes
    )
    return result


def examine(node: ir.Node, opset: int, facts: OpFacts | None = None) -> Iterator[Problem]:
    """Yield everything about a node that `opset`, a version of its domain, does not allow.

    Looks at the operator, attribute names, types and values, the number of inputs and outputs,
    required inputs, and the element types that are known. Attributes that refer to a parameter of
    a function count as given. The kinds are `unknown-operator`, `deprecated-operator`,
    `unknown-attribute`, `attribute-type`, `missing-attribute`, `wrong-arity`,
    `missing-input`, `attribute-value` and `element-type`.

    Args:
        node: The node.
        opset: The version of its domain.
        facts: What is known of its operator; None for what onnx knows.
    """
    facts = op_facts(node.op_type, opset, node.domain) if facts is None else facts
    if facts is None or facts.deprecated:
        text = f"`{node.op_type}` does not exist at opset {opset}"
        kind = "unknown-operator" if facts is None else "deprecated-operator"
        yield Problem("unknown-operator", text, kind)
        return
    if node.attributes.data or facts.attributes:
        yield from _attributes(node, facts, opset)
    if len(node.inputs) > facts.max_inputs:
        given = counted(len(node.inputs), "input")
        text = f"{given}, `{node.op_type}` takes at most {facts.max_inputs}"
        yield Problem("input", f"{text} at opset {opset}", "wrong-arity")
    if not facts.min_outputs <= len(node.outputs) <= facts.max_outputs:
        given = counted(len(node.outputs), "output")
        least, most = facts.min_outputs, facts.max_outputs
        span = str(most) if least == most else f"{least} to {most}"
        text = f"{given}, `{node.op_type}` has {span}"
        yield Problem("output", f"{text} at opset {opset}", "wrong-arity")
    yield from _absent_inputs(node, facts)
    yield from _values(node, facts, opset)
    for problem in _types(node, facts, opset):
        if problem.code != "unknown-element-type":
            yield problem


def _attributes(node: ir.Node, facts: OpFacts, opset: int) -> Iterator[Problem]:
    for name, given in node.attributes.items():
        declared = facts.attributes.get(name)
        if declared is None:
            text = f"`{node.op_type}` has no attribute `{name}` at opset {opset}"
            yield Problem("attribute", text, "unknown-attribute", name)
        elif given.type.value != declared.type:
            text = f"attribute `{name}` is of type {given.type.name}"
            yield Problem("attribute-type", text, "attribute-type", name)
    for name, attribute in facts.attributes.items():
        if attribute.required and name not in node.attributes:
            text = f"attribute `{name}` is required at opset {opset}"
            yield Problem("attribute", text, "missing-attribute", name)


def _absent_inputs(node: ir.Node, facts: OpFacts) -> Iterator[Problem]:
    for index, formal in enumerate(facts.inputs):
        if formal.optional or formal.variadic:
            continue
        if index >= len(node.inputs) or node.inputs[index] is None:
            text = f"input `{formal.name}` of `{node.op_type}` is required and absent"
            yield Problem("input", text, "missing-input", formal.name)


def _fit_attributes(node: ir.Node, old: OpFacts, new: OpFacts, result: Fit) -> None:
    for name, given in node.attributes.items():
        if name in new.attributes:
            continue
        declared = old.attributes.get(name)
        if declared is not None and not given.is_ref() and _same(given.value, declared):
            result.drop.append(name)
        else:
            text = f"attribute `{name}` does not exist {_where(old, new, name)}"
            result.problems.append(Problem("attribute", text))
    for name, attribute in old.attributes.items():
        other = new.attributes.get(name)
        if other is None or name in node.attributes or attribute.default == other.default:
            continue
        if attribute.default is None:
            text = f"attribute `{name}` has the default {other.default!r} at the other opset only"
            result.problems.append(Problem("attribute", text))
        else:
            result.add[name] = attribute.default
    for name, attribute in new.attributes.items():
        if name in node.attributes or name in old.attributes:
            continue
        given_as_input = any(f.name == name for f in old.inputs)
        if attribute.required and not given_as_input:
            text = f"attribute `{name}` is required at opset {new.since_version}"
            result.problems.append(Problem("attribute", text))


def _fit_inputs(node: ir.Node, old: OpFacts, new: OpFacts, result: Fit) -> None:
    names = {f.name for f in new.inputs}
    last = 0
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        formal = old.input(index)
        if formal is not None and formal.name not in names and formal.name in new.attributes:
            result.as_attribute.append((index, formal.name))
        else:
            last = index + 1
    if last > new.max_inputs:
        formal = old.input(last - 1)
        name = formal.name if formal else str(last - 1)
        text = f"input `{name}` does not exist {_where(old, new, name)}"
        result.problems.append(Problem("input", text))
    result.problems.extend(_absent_inputs(node, new))
    if new.inputs and new.inputs[-1].variadic and len(node.inputs) < new.min_inputs:
        given = counted(len(node.inputs), "input")
        text = f"{given}, at least {new.min_inputs} at {new.since_version}"
        result.problems.append(Problem("input", text))
    if len(node.outputs) > new.max_outputs:
        given = counted(len(node.outputs), "output")
        text = f"{given}, at most {new.max_outputs} at {new.since_version}"
        result.problems.append(Problem("output", text))


def _values(node: ir.Node, new: OpFacts, target: int) -> Iterator[Problem]:
    for limit in VALUE_LIMITS.get(node.op_type, ()):
        given = node.attributes.get(limit.attribute)
        if given is None or limit.attribute not in new.attributes or target >= limit.since:
            continue
        if given.value in limit.values:
            yield Problem(
                "attribute-value",
                f"`{limit.attribute}={given.value}` does not exist before opset {limit.since}",
                "attribute-value",
                limit.attribute,
            )


def _types(
    node: ir.Node, new: OpFacts, target: int, narrower: OpFacts | None = None
) -> Iterator[Problem]:
    """Yield what is wrong with the types of a node.

    A type need not be known where every type that the version `narrower` takes is taken.
    """
    for kind, values, formals, before in (
        ("input", node.inputs, new.input, narrower and narrower.input),
        ("output", node.outputs, new.output, narrower and narrower.output),
    ):
        for index, value in enumerate(values):
            formal = formals(index)
            if value is None or formal is None or (kind == "output" and not value.name):
                continue  # an empty name is an absent output
            name = type_name(value)
            if name is None:
                if not value.is_graph_output() and not value.uses():
                    continue  # an output that nobody reads need not be known
                if before and (had := before(index)) is not None and had.types <= formal.types:
                    continue
                text = f"the type of {kind} `{value.name}` is unknown"
                yield Problem("unknown-element-type", text)
            elif name not in formal.types:
                text = f"{kind} `{value.name}` is {name}, which `{node.op_type}` does not take"
                text = f"{text} at opset {target}"
                yield Problem("element-type", text, "element-type", value.name or "")


def _first(facts: OpFacts) -> int:
    """Return the opset that brought the operator, in its first version."""
    came = facts.since_version
    while came > 1 and (older := op_facts(facts.op_type, came - 1)) is not None:
        came = older.since_version
    return came


def _where(old: OpFacts, new: OpFacts, name: str) -> str:
    """Say at which opsets the version `new` and those around it lack a name that `old` has."""
    if new.since_version > old.since_version:
        return f"at opset {new.since_version}"
    return f"before opset {_came(old, name)}"


def _came(facts: OpFacts, name: str) -> int:
    """Return the opset with which an attribute or input of this name came."""
    came = facts.since_version
    while came > 1:
        older = op_facts(facts.op_type, came - 1)
        if older is None or not (
            name in older.attributes or any(f.name == name for f in older.inputs)
        ):
            break
        came = older.since_version
    return came


def _same(given: object, declared: AttributeFacts) -> bool:
    """Compare an attribute with a default, floats in the precision in which a file keeps them."""
    default = declared.default
    if isinstance(given, float) and isinstance(default, float):
        return struct.pack("<f", given) == struct.pack("<f", default)
    if isinstance(given, (list, tuple)):
        given = tuple(given)
        # `dilations` has no default in the schema, but means ones.
        if declared.name == "dilations" and default is None:
            return all(item == 1 for item in given)
    return given == default
