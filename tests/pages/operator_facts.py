"""What the schemas and the tables of kvtool say of an operator from one opset to the next.

Only opsets up to `LAST` count, so that the pages do not depend on the installed onnx.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from onnx_kvtool.ops.changes import CHANGES, VALUE_LIMITS
from onnx_kvtool.ops.schema import AttributeFacts, Formal, OpFacts, has_body, op_history
from onnx_kvtool.rewrite.engine.dtypes import detoured_parameter
from onnx_kvtool.rewrite.lowering.early.loops import AT_ONCE
from onnx_kvtool.rewrite.lowering.early.steps import STEPS
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from tests.pages.markdown import element_type, joined

__all__ = ["LAST", "attributes", "changes", "element_types", "fates", "formals", "versions"]

LAST = 28
"""The newest opset that the lowest onnx among the dependencies knows."""

_TARGETS = range(23, 8, -1)


def versions(op: str) -> list[OpFacts]:
    """Return the versions of an operator up to `LAST`, the oldest first; [] for none."""
    return [facts for facts in reversed(op_history(op)) if facts.since_version <= LAST]


def formals(given: tuple[Formal, ...]) -> str:
    """Return the names of inputs or outputs as `kvtool ops` writes them."""
    return joined(
        f"`{one.name}{'?' if one.optional else ''}{'...' if one.variadic else ''}`" for one in given
    )


def attributes(given: Iterable[AttributeFacts]) -> str:
    """Return attributes with their defaults."""
    return joined(f"`{one.name}{_default(one)}`" for one in sorted(given, key=lambda a: a.name))


def _default(attribute: AttributeFacts) -> str:
    if attribute.default is None:
        return "" if attribute.required else "?"
    return f"={_value(attribute.default)}"


def _value(default: object) -> str:
    if isinstance(default, float):
        default = float(f"{default:.7g}")  # the schema holds float32
    return (
        "none" if default is None else str(list(default) if isinstance(default, tuple) else default)
    )


def changes(old: OpFacts, new: OpFacts) -> list[str]:
    """Return what a version changed, against the one before."""
    if new.deprecated:
        return ["gone"]
    found = [
        f"{text}: {joined(f'`{name}`' for name in names)}"
        for kind, before, after in (
            ("input", _names(old.inputs), _names(new.inputs)),
            ("output", _names(old.outputs), _names(new.outputs)),
            ("attribute", set(old.attributes), set(new.attributes)),
        )
        for text, names in (
            (f"new {kind}", sorted(after - before)),
            (f"{kind} gone", sorted(before - after)),
        )
        if names
    ]
    for name in sorted(set(old.attributes) & set(new.attributes)):
        before, after = old.attributes[name].default, new.attributes[name].default
        if before != after:
            found.append(f"default of `{name}`: {_value(before)} becomes {_value(after)}")
    op, since = new.op_type, new.since_version
    for name in new.attributes:
        later = VALUE_LIMITS.get((op, name), {}).items()
        if values := sorted(f"`{value}`" for value, opset in later if opset == since):
            found.append(f"`{name}` may be {joined(values)}")
    found += [f"meaning: {change.text}" for change in CHANGES.get(op, ()) if change.since == since]
    if any(_types(old, formal.name) not in (None, formal.types) for formal in _all(new)):
        found.append("element types")
    return found


def _names(given: tuple[Formal, ...]) -> set[str]:
    return {one.name.rstrip(".") for one in given}


def _all(facts: OpFacts) -> tuple[Formal, ...]:
    return (*facts.inputs, *facts.outputs)


def _types(facts: OpFacts, name: str) -> frozenset[str] | None:
    return next((formal.types for formal in _all(facts) if formal.name == name), None)


def element_types(history: list[OpFacts]) -> list[tuple[str, str]]:
    """Return names of inputs and outputs, and the types that they take from version to version.

    Names of one line take the same types in every version.
    """
    history = [facts for facts in history if not facts.deprecated]
    lines: dict[tuple[frozenset[str] | None, ...], list[str]] = {}
    names = dict.fromkeys(formal.name for facts in reversed(history) for formal in _all(facts))
    for name in names:
        lines.setdefault(tuple(_types(facts, name) for facts in history), []).append(name)
    return [
        (joined(f"`{name}`" for name in names), "; ".join(_by_version(history, taken)))
        for taken, names in lines.items()
    ]


def _by_version(history: list[OpFacts], taken: tuple[frozenset[str] | None, ...]) -> Iterator[str]:
    """Yield the types that came with each version, and until when those are taken that went."""
    since: dict[tuple[int, int | None], set[str]] = {}
    for type_ in {one for types in taken for one in types or ()}:
        there = [type_ in (types or ()) for types in taken]
        first = there.index(True)
        gone = next((i for i in range(first, len(there)) if not there[i]), None)
        until = None if gone is None else history[gone].since_version - 1
        since.setdefault((history[first].since_version, until), set()).add(type_)
    for (first, until), types in sorted(
        since.items(), key=lambda item: (item[0][0], item[0][1] or LAST)
    ):
        span = f"{first} to {until}" if until else f"from {first}"
        only = len(since) == 1 and until is None and first == history[0].since_version
        yield ("" if only else f"{span}: ") + _listed(types)


def _listed(types: set[str]) -> str:
    """Return names of element types in one order; sequences and optionals behind them."""
    plain = sorted(filter(None, (_tensor(one) for one in types)), key=_order)
    nested = sorted(one for one in types if _tensor(one) is None)
    kinds = []
    for kind, members in groupby(nested, key=lambda one: re.sub(r"tensor\(\w+\)", "...", one)):
        inner = sorted(
            {element_type(t) for one in members for t in re.findall(r"tensor\((\w+)\)", one)},
            key=_order,
        )
        kinds.append(f"{kind} of {joined(inner)}" if inner else kind)
    return "; ".join(filter(None, (", ".join(plain), *kinds)))


def _tensor(type_: str) -> str | None:
    found = re.fullmatch(r"tensor\((\w+)\)", type_)
    return element_type(found[1]) if found else None


def _order(name: str) -> tuple[int, int, str]:
    """Sort floats, integers, and the rest, each the widest first."""
    kind = next(
        (i for i, k in enumerate(("float", "bfloat", "int", "uint")) if name.startswith(k)), 4
    )
    width = re.search(r"\d+", name)
    return kind, -int(width[0]) if width else 0, name


def fates(op: str) -> list[tuple[str, str]]:
    """Return what becomes of a node of the newest version at the opsets of `kvtool lower`.

    Opsets at which the same becomes of it share a line.
    """
    newest = versions(op)[-1]
    told = [(target, _fate(op, newest, target)) for target in _TARGETS]
    lines = []
    for text, group in groupby(told, key=lambda line: line[1]):
        opsets = [target for target, _ in group]
        span = str(opsets[0]) if len(opsets) == 1 else f"{opsets[0]} to {opsets[-1]}"
        lines.append((span, text))
    return lines


def _early_fate(op: str, newest: OpFacts, target: int) -> str:
    """Return what becomes of an operator below 11, by way of 11."""
    before, there = (
        [facts for facts in versions(op) if facts.since_version <= opset]
        for opset in (AT_ONCE, target)
    )
    if not before or before[-1:] == there[-1:]:
        return _fate(op, newest, AT_ONCE)  # its nodes go on, or those that are written for it
    steps = [STEPS[opset].get(op) for opset in range(AT_ONCE - 1, target - 1, -1)]
    ways = [f"rule `{rule.name}`" for rule in steps if rule is not None]
    if has_body(op):
        ways.append("the function body of the schema")
    if there:
        ways.insert(0, f"stays where version {there[-1].since_version} means the same")
    return f"as at {AT_ONCE}, and from there: " + ", else ".join([*ways, "refused"])


def _fate(op: str, newest: OpFacts, target: int) -> str:
    if target < AT_ONCE:
        return _early_fate(op, newest, target)
    there = [facts for facts in versions(op) if facts.since_version <= target]
    if there and there[-1] is newest:
        return "stays"
    ways = []
    rule = LOWERINGS.get(op)
    if rule is not None and target < rule.since:
        ways.append(f"rule `{rule.name}`")
    if there and detoured_parameter(op) is not None:
        ways.append("casts to a type that it takes and back")
    if has_body(op):
        ways.append("the function body of the schema")
    if there:
        ways.insert(0, f"stays where version {there[-1].since_version} means the same")
    return ", else ".join([*ways, "refused"])
