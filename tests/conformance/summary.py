"""Counting verdicts, and the page that shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import onnx
import onnxruntime

from onnx_kvtool.core.diagnostic import Diagnostic
from tests.conformance.corpus import Case, cases
from tests.conformance.difference import RANDOM
from tests.conformance.verdict import Verdict, judged

__all__ = ["TARGETS", "page", "verdicts"]

TARGETS = (9, 10, 11, 13, 17, 18, 21, 23)


def verdicts(target: int, some: Iterable[Case] | None = None) -> dict[str, Verdict]:
    """Judge some cases at one target, or every one."""
    return {case.name: judged(case, target) for case in (cases() if some is None else some)}


def page(by_target: Mapping[int, Mapping[str, Verdict]]) -> str:
    """Return the text of `docs/conformance.md`."""
    rows = []
    for target, found in by_target.items():
        count = Counter(v.status for v in found.values())
        runtimes = Counter(v.detail for v in found.values() if v.status == "equal")
        above = len(found) - count["already"]
        rows.append(
            f"| {target} | {above} | {count['equal']} | {runtimes['onnxruntime']} "
            f"| {runtimes['reference']} | {count['refused']} | {count['wrong']} |"
        )
    parts = [
        _HEAD.format(
            cases=len(cases()),
            onnx=onnx.__version__,
            onnxruntime=onnxruntime.__version__,
            rows="\n".join(rows),
            random=", ".join(f"`{name}`" for name in sorted(RANDOM)),
        )
    ]
    for target, found in by_target.items():
        parts.append(f"\n## Refused at {target}\n\n{_refusals(found)}\n")
    parts.append(_WHY)
    return "".join(parts)


def _refusals(found: Mapping[str, Verdict]) -> str:
    """Return a table of the refusals: operator, code, cases, lowest opset, one of the reasons."""
    groups: dict[tuple[str, str], list[Diagnostic]] = {}
    for verdict in found.values():
        for first in verdict.refusals[:1]:
            groups.setdefault((first.location.op or "", first.code), []).append(first)
    lines = [
        "| operator | reason | cases | from opset | for example |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (op, code), group in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        lowest = sorted({r.lowest_opset for r in group if r.lowest_opset is not None})
        text = group[0].message.replace("|", "\\|")
        opsets = ", ".join(str(n) for n in lowest) or "none"
        lines.append(f"| {op} | {code} | {len(group)} | {opsets} | {text} |")
    return "\n".join(lines)


_WHY = """
## Why not

What no older operator says, whatever it costs:

- ImageDecoder: nothing else reads the bytes of a picture file.
- StringConcat, StringSplit and RegexFullMatch: nothing else makes strings of strings, or looks
  into one. Below 11 Equal of strings, which Unique compares from there on.
- BitCast of floats: nothing else reads, or makes, the bits of what is not a number.
- Cast, CastLike, QuantizeLinear, DequantizeLinear and others at the border of a model whose
  inputs or outputs are of a type that the opset lacks: these keep their types. Of bfloat16,
  `--element-type` changes them. Optionals below 15 likewise, and sequences that If, Loop or
  SequenceMap give below 13.
- Below 11, If whose branches give different shapes, sequences whose elements the run alone knows
  or that are inputs or outputs of the model, and Unique of strings; at 9 StringNormalizer.

What could be written if more were known before the model runs:

- MelWeightMatrix whose inputs are no constants, as in the case of onnx: rounding decides the bin
  of a frequency, and the text does not say how it rounds. Constants are refused as well where
  float32 and float64 disagree.
- Resize below 11, and before that with `antialias`, `keep_aspect_ratio_policy` or
  `half_pixel_symmetric`, of an input whose rank the model does not declare.
- GridSample of a rank, DeformConv and Col2Im of a number of channels or axes, windows with gaps of
  a number of channels, scatters with a reduction of an index that the model does not declare; the
  cases of onnx declare them.
- ConvTranspose below 11 with `output_shape`, of an input whose sizes the model does not declare.
- At 9 TopK of a number that is known at run time alone, where the size of the axis is not known
  either.

What the text leaves open:

- Resize of integers by shares below 11: how the sums are rounded.

What could be written, and is not:

- SequenceMap below 13 of sequences whose elements are known, its body once for each; no case of
  onnx has one.
"""

_HEAD = """# Conformance

Every one of the {cases} single-operator cases of the onnx wheel that import the default domain is
lowered to each of these opsets. A case that is at the opset already is left out. Each other case
is either lowered, accepted by onnx's checker with full inference, and gives the expected outputs
in onnxruntime or, where that has no kernel or another opinion, in onnx's reference implementation;
or it is refused, with the reason. Integers, strings and booleans are compared exactly.

`python -m tests.conformance` writes this page; it was written with onnx {onnx} and onnxruntime
{onnxruntime}.

| opset | cases above it | equal | of these in onnxruntime | in the reference | refused | wrong |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

Of {random} only types and shapes are compared, because their outputs are random.
"""
