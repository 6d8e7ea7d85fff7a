"""Every case in our reference runtime and in onnx.reference, and the page that compares them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.kernels import table
from onnx_kvtool.runtime.kernels.contrib import CONTRIB_KERNELS
from onnx_kvtool.runtime.kernels.table import KERNELS
from onnx_kvtool.verification.comparison.differences import bits_differ
from tests.conformance.corpus import Case, cases, few
from tests.conformance.difference import RANDOM, difference_of

__all__ = ["EXACT", "Runs", "family_of", "reference_page", "runs"]

EXACT = ("scatter", "gather", "movement", "conversion", "sequence", "control")
"""Families whose operators only move, select or round: no bit may differ from the case."""

BORROWED = "run by onnx.reference"


@dataclass(frozen=True, slots=True)
class Runs:
    """What became of a case in both runtimes.

    Attributes:
        family: Family of the kernel that runs its operator, or `BORROWED`.
        ours: What is wrong with our outputs; None if nothing.
        onnx: The same of onnx.reference.
        exact: Whether our outputs are the bits of the case.
    """

    family: str
    ours: str | None
    onnx: str | None
    exact: bool


@functools.cache
def runs(whole: bool = True) -> dict[str, Runs]:
    """Run every case in both runtimes, or two of each operator."""
    return {case.name: _run(case) for case in (cases() if whole else few())}


def family_of(op_type: str) -> str:
    """Return the family of the kernel of an operator."""
    for module in table.MODULES:
        if op_type in module.LINES:
            return module.__name__.split(".")[3]
    return BORROWED


def _run(case: Case) -> Runs:
    op_type = case.model.graph.node[0].op_type
    exact = False
    try:
        outputs = list(Evaluator(ir.from_proto(case.model)).run(_feeds(case)).values.values())
        ours = difference_of(case, outputs)
        exact = ours is None and _same_bits(outputs, case.expected)
    except KvtoolError as error:
        ours = error.message
    try:
        with np.errstate(all="ignore"):
            theirs = difference_of(case, list(ReferenceEvaluator(case.model).run(None, case.feeds)))
    except Exception as error:  # noqa: BLE001  # whatever its code runs into
        theirs = f"{type(error).__name__}: {error}"
    return Runs(family_of(op_type), ours, theirs, exact)


def _feeds(case: Case) -> dict[str, Any]:
    return {name: _object(value) for name, value in case.feeds.items()}


def _object(value: Any) -> Any:
    is_text = isinstance(value, np.ndarray) and value.dtype.kind in "US"
    return value.astype(object) if is_text else value


def _same_bits(got: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return all(_same_bits(a, b) for a, b in zip(got, expected, strict=True))
    if expected is None:
        return got is None
    one, other = np.asarray(got), np.asarray(expected)
    if other.dtype.kind in "OUS":
        return bool(one.tolist() == other.tolist())
    return not bits_differ(one, other).any()


def reference_page(found: Mapping[str, Runs]) -> str:
    """Return the text of `docs/reference-runtime.md`."""
    rows = []
    families = dict.fromkeys(run.family for run in found.values())
    for family in sorted(families, key=lambda name: (name == BORROWED, name)):
        group = [run for run in found.values() if run.family == family]
        rows.append(_row(family, group))
    rows.append(_row("**all**", list(found.values())))
    missed = [
        f"- `{name}`: {run.ours.splitlines()[0][:160]}" for name, run in found.items() if run.ours
    ]
    return _PAGE.format(
        cases=len(found),
        onnx=onnx.__version__,
        operators=len(KERNELS),
        contrib="\n".join(f"- `{domain}::{op_type}`" for domain, op_type in CONTRIB_KERNELS),
        rows="\n".join(rows),
        random=", ".join(f"`{name}`" for name in sorted(RANDOM)),
        missed="\n".join(missed) or "None.",
    )


def _row(family: str, group: list[Runs]) -> str:
    ours = sum(run.ours is None for run in group)
    exact = sum(run.exact for run in group)
    theirs = sum(run.onnx is None for run in group)
    return f"| {family} | {len(group)} | {ours} | {exact} | {theirs} |"


_PAGE = """# The reference runtime

`kvtool eval`, and `kvtool verify` where onnxruntime lacks a kernel, run a model node by node with
kernels of our own for {operators} operators, in every version that they have had. They compute what
the ONNX text says; what it calls an error or leaves undefined fails with the node, the values and
their shapes, or gives a warning. Any other operator is run by onnx's reference implementation of
that one node, and the report names it.

The table holds both against the {cases} single-operator cases of the onnx wheel that import the
default domain: how many pass with the tolerance of the case, and how many of ours are the very
bits.
`python -m tests.conformance` writes this page; it was written with onnx {onnx}.

| kernels | cases | kvtool | of these bit for bit | onnx.reference |
| --- | --- | --- | --- | --- |
{rows}

Of {random} only types and shapes are compared, because their outputs are random.

## Cases that do not pass

{missed}

## Operators of onnxruntime

Models that onnxruntime's optimiser or model builder wrote have operators that onnx does not define.
Each runs as [its standard form](operators/contrib.md) says, which is tested against the kernel of
onnxruntime 1.32 for CPUs. What has no standard form, such as a quantized cache, fails with the
reason. A few have kernels of their own, because a form does not say all that they do:

{contrib}
"""
