"""The page of the operators: `python -m tests.commands.operators_page` writes it anew.

It holds what the tables of kvtool say, and nothing that depends on the installed onnx.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onnx_kvtool.commands.ops import OpsRequest, run
from onnx_kvtool.ops.knowledge import Operator

__all__ = ["PATH", "page"]

PATH = Path(__file__).resolve().parents[2] / "docs" / "operators.md"

_HEAD = """\
# Operators

The operators of which kvtool has something of its own; `kvtool ops OP` tells more about one.

- **kernel**: the versions from which on a kernel of the [reference runtime](reference-runtime.md)
  computes it.
- **lowering**: the rule that takes it to older opsets, and the opset below which it does;
  *on request* where `kvtool lower --only` and `--target` can ask for it at any opset. Operators
  whose schema has a function body are lowered without a rule.
- **upgrade**: the rule that takes it to later opsets, and the changes that it answers.
- **raising**: the form of cache update that [`kvtool raise`](raise.md) reads off it.
- **rules**: the rules of [`kvtool check`](check.md) about it.
- **limits**: how many limits releases of runtimes have with it.

`python -m tests.commands.operators_page` writes this page.

| operator | kernel | lowering | upgrade | raising | rules | limits |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page, with a line end after the last line."""
    operators = run(OpsRequest()).operators
    return _HEAD + "".join(f"| {' | '.join(_row(operator))} |\n" for operator in operators)


def _row(operator: Operator) -> tuple[str, ...]:
    return (
        operator.op,
        _joined(kernel.since for kernel in operator.kernels),
        _joined(
            f"{one.rule}, below {one.below}{', on request' if one.removes else ''}"
            for one in operator.lowerings
        ),
        _joined(f"{one.rule}, across {_joined(one.across)}" for one in operator.upgrades),
        _joined(one.pattern for one in operator.raisings if one.reads == operator.op)
        if operator.op != "TensorScatter"
        else "what all of them make",
        _joined(f"[{rule.code}]({rule.url.removeprefix('docs/')})" for rule in operator.rules),
        str(len(operator.limits) or "-"),
    )


def _joined(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "-"


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
