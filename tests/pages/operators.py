"""The pages of the operators: an index, and a page for each operator of the default domain."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from onnx_kvtool.commands.ops import Operator, run
from onnx_kvtool.commands.requests import OpsRequest
from onnx_kvtool.ops.schema import operators
from onnx_kvtool.rewrite.lowering.early.steps import rules_of
from onnx_kvtool.rewrite.raising.raisings import RAISINGS
from onnx_kvtool.rewrite.upgrading.upgrades import UPGRADES
from onnx_kvtool.runtime.kernels.table import KERNELS
from onnx_kvtool.shapes.bodies import CONTROL
from onnx_kvtool.symbolic.rules.table import element_rule, shape_rule
from onnx_kvtool.targets.release import Limit
from onnx_kvtool.targets.releases import releases
from tests.pages import contrib
from tests.pages.markdown import contract, head, joined, prose, table
from tests.pages.operator_facts import (
    attributes,
    changes,
    element_types,
    fates,
    formals,
    versions,
)
from tests.pages.targets import span

__all__ = ["pages"]

_HEADER = ("operator", "kernel", "lowering", "upgrade", "raising", "rules", "limits")
_MADE = "TensorScatter"
"""What every raising makes of an update."""


def pages() -> dict[str, str]:
    """Return the content of each page, by the name of its file."""
    refused = set(re.findall(r"^\| (\w+) \|", head("conformance.md"), re.MULTILINE))
    known = [_about(op) for op in sorted({*operators(), *UPGRADES}) if versions(op)]
    return {
        "contrib.md": contrib.page(),
        "index.md": f"{head('operators/index.md')}\n{table(_HEADER, map(_row, known))}\n",
        **{f"{one.op}.md": "\n\n".join(_page(one, refused)) + "\n" for one in known},
    }


def _about(op: str) -> Operator:
    (operator,) = run(OpsRequest(op)).operators
    return operator


def _row(operator: Operator) -> tuple[str, ...]:
    lowering = [
        f"{one.rule}, below {one.below}{', on request' if one.removes else ''}"
        for one in operator.lowerings
    ]
    if operator.function_body and not lowering:
        lowering = ["function body"]
    return (
        f"[{operator.op}]({operator.op}.md)",
        joined(kernel.since for kernel in operator.kernels),
        joined(lowering),
        joined(f"{one.rule}, across {joined(one.across)}" for one in operator.upgrades),
        joined(one.pattern for one in operator.raisings if one.reads == operator.op)
        if operator.op != _MADE
        else "what all of them make",
        joined(f"[{rule.code}](../rules/{rule.code}.md)" for rule in operator.rules),
        str(len(operator.limits) or "-"),
    )


def _page(operator: Operator, refused: set[str]) -> Iterator[str]:
    op = operator.op
    yield f"# {op}"
    yield from _versions(op)
    yield from _lowering(operator, op in refused)
    yield from _upgrade(op)
    yield from _raising(op)
    yield from _inference(op)
    yield from _kernels(operator)
    yield from _rules(operator)
    yield from _limits(op)


def _versions(op: str) -> Iterator[str]:
    history = versions(op)
    yield "## Versions"
    rows = [
        (
            str(facts.since_version),
            formals(facts.inputs),
            formals(facts.outputs),
            attributes(facts.attributes.values()),
            "; ".join(changes(before, facts) if before else ()) or "-",
        )
        for before, facts in zip([None, *history], history, strict=False)
    ]
    yield table(("version", "inputs", "outputs", "attributes", "what changed"), rows)
    yield (
        "`?` marks what may be absent, `...` what may be there any number of times; an attribute "
        "stands with its default."
    )
    if types := element_types(history):
        yield table(("inputs and outputs", "element types"), types)


def _lowering(operator: Operator, is_refused: bool) -> Iterator[str]:
    op = operator.op
    if operator.versions[-1].deprecated:
        return
    yield "## At older opsets"
    yield (
        "What [`kvtool lower`](../commands/lower.md) does to a node of the newest version, by the "
        "opset asked for. *Stays* means: in the form of that opset."
    )
    yield table(("opset", f"what becomes of {op}"), fates(op))
    for one, rule in zip(operator.lowerings, rules_of(op), strict=True):
        if one.removes:
            yield f"`--only {op}` and `--target` replace it at any opset."
        if one.reads != one.below:
            yield f"The rule reads nodes of opset {one.reads} and later."
        yield f"Rule `{one.rule}`:"
        yield contract(rule.apply)
    if operator.function_body and not operator.lowerings:
        yield f"`--only {op}` puts the function body in its place at any opset."
    if is_refused:
        yield (
            "[Conformance](../conformance.md) counts the test cases of onnx for it that are "
            "refused, with the reasons."
        )


def _upgrade(op: str) -> Iterator[str]:
    if (rule := UPGRADES.get(op)) is not None:
        yield "## At later opsets"
        yield (
            f"Where [`kvtool raise`](../commands/raise.md) brings a model across opset "
            f"{joined(rule.changes)}, rule `{rule.name}` keeps the meaning:"
        )
        yield contract(rule.apply)


def _raising(op: str) -> Iterator[str]:
    if op == _MADE:
        yield "## Raising"
        read = joined(f"[{name}]({name}.md)" for name in RAISINGS)
        yield f"[`kvtool raise`](../commands/raise.md) makes it of updates, read off {read}."
    elif (rule := RAISINGS.get(op)) is not None:
        yield "## Raising"
        yield (
            f"[`kvtool raise`](../commands/raise.md) reads the pattern `{rule.name}` off it and "
            f"makes it a [{_MADE}]({_MADE}.md):"
        )
        yield contract(rule.prove)


def _inference(op: str) -> Iterator[str]:
    said = []
    if shape_rule(op) is not None or op in CONTROL:
        said.append(
            "[`kvtool infer`](../commands/infer.md) has a rule of its own for its types and shapes."
        )
    if element_rule(op) is not None:
        said.append(
            "What its integers hold at each coordinate is followed through it, so that positions "
            "that it computes can be proven."
        )
    if said:
        yield "## Inference"
        yield " ".join(said)


def _kernels(operator: Operator) -> Iterator[str]:
    yield "## Reference runtime"
    kernels = operator.kernels
    if not kernels:
        yield "kvtool has no kernel of its own; onnx's reference implementation runs it."
        return
    spans = [
        str(one.since) if one.since == after.since - 1 else f"{one.since} to {after.since - 1}"
        for one, after in pairwise(kernels)
    ]
    said = f"Kernels of kvtool compute version {', '.join((*spans, f'{kernels[-1].since} on'))}."
    if kernels[-1].in_place:
        said += f" Decode steps may write into the buffer of `{kernels[-1].in_place}`."
    yield f"{said} The newest:"
    function = KERNELS[operator.op][kernels[-1].since]
    for name, one in _kernel_and_those_it_names(function):
        if one is not function:
            yield f"Where it says `{name}`:"
        yield contract(one)
        if failure := _failure(inspect.getdoc(one) or ""):
            yield prose(f"It fails {failure}")


def _kernel_and_those_it_names(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield a kernel, and the functions that its docstring refers to (`As `split_2``)."""
    yield function.__name__, function
    named = re.findall(r"\b(?:[Aa]s|see) `(\w+)`", inspect.getdoc(function) or "")
    for name in dict.fromkeys(named):
        other = getattr(sys.modules[function.__module__], name, None)
        if inspect.isfunction(other):
            yield name, other


def _failure(text: str) -> str | None:
    """Return the condition under which a kernel says that it fails."""
    found = re.search(r"^Raises:\n\s+KernelError: (.*)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return None
    condition = " ".join(found[1].split("\n\n")[0].split())
    condition = re.sub(r" \(`\w+`\)", "", condition)  # names of functions
    return condition[0].lower() + condition[1:]


def _rules(operator: Operator) -> Iterator[str]:
    if operator.rules:
        yield "## Rules of check"
        rows = [
            (f"[{one.code}](../rules/{one.code}.md)", one.name, one.severity, one.summary)
            for one in operator.rules
        ]
        yield table(("code", "name", "severity", "what it finds"), rows)


def _limits(op: str) -> Iterator[str]:
    found: dict[tuple[str, str], tuple[Limit, list[str]]] = {}
    for release in releases():
        for limit in release.limits:
            if limit.operator == op:
                key = limit.name, release.runtime
                found.setdefault(key, (limit, []))[1].append(release.version)
    if found:
        yield "## Limits of runtimes"
        rows = [
            (
                f"[{runtime}](../targets/{runtime}.md)",
                span(runtime, numbers),
                limit.reason,
                limit.evidence,
            )
            for (_, runtime), (limit, numbers) in found.items()
        ]
        yield table(("runtime", "releases", "what they do", "evidence"), rows)
