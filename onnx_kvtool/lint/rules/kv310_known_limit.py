"""KV310: the release is known to refuse a node of this form, or to compute it wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["KnownLimit"]

_HAVE_RULES = frozenset(
    {
        "kv-cache-update",
        "attention-4d",
        "attention-nonpad-ignored",
        "attention-causal-nonpad",
    }
)


class KnownLimit(TargetRule):
    """The release is known to refuse a node of this form, or to compute it wrongly.

    ## What it does

    With `--target`, looks for nodes that one of the other limits strikes which kvtool knows of a
    release: rows of an Attention that a mask leaves without keys, `softcap` with a mask, axes of a
    Squeeze that are not constant, and so on. Where a shape or a value is not known the node is
    reported as well: it may be of the form that is meant. What `kvtool lower` has no other form
    for, and refuses, is an error.

    ## Why is this bad?

    The model loads and its results differ from what the operators say, or it does not load; which
    of the two, the message says.

    ## References

    - `kvtool targets --format json` lists the limits of each release, and where each was measured
      or read.
    """

    code = "KV310"
    name = "known-limit"
    severity = "warning"
    basis = "heuristic"
    runtime = "any"
    example_target = "onnxruntime@1.26.0"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 4, 5] query, float[2, 3, 7, 5] key, float[2, 3, 7, 5] value,
            bool[2, 1, 4, 7] mask) => (float[2, 3, 4, 5] y) {
            [attention] y = Attention (query, key, value, mask)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 4, 5] query, float[2, 3, 7, 5] key, float[2, 3, 7, 5] value)
            => (float[2, 3, 4, 5] y) {
            [attention] y = Attention (query, key, value)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Ask the data on the release for what no other rule is about."""
        from contextlib import nullcontext

        from onnx_kvtool.analysis.conditions import OF_SHAPES
        from onnx_kvtool.analysis.other_forms import has_other_form
        from onnx_kvtool.lint.facts.release import limited, lowering_command, runtime_words
        from onnx_kvtool.shapes.inference import inferred

        asks_for_shapes = any(limit.when in OF_SHAPES for limit in target.release.limits)
        with inferred(context.model) if asks_for_shapes else nullcontext():
            struck = list(limited(context, target))
        for site, limit in struck:
            has_kernel = limit.when not in ("always", "other-element-type")
            if has_kernel and limit.name not in _HAVE_RULES:
                is_refused = not has_other_form(limit)
                yield self.found(
                    site.location(),
                    f"{runtime_words(target)} {limit.reason}",
                    help=(limit.help if is_refused else None)
                    or f"lower the model for this release: {lowering_command(target)}",
                    severity="error" if is_refused else None,
                )
