"""The equation of Einsum, read into one index name per dimension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from onnx_kvtool.ops.view import MalformedNode

__all__ = ["Labels", "parse"]

Labels = tuple[str, ...]
"""The index of each dimension of an operand; those under an ellipsis are `.1`, `.0` from the
right, so that operands of different rank share the last ones."""


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the indices of each operand and of the output.

    Without `->` the output has the ellipsis and then, in alphabetical order, each index that
    stands once (Einsum-12).

    Args:
        equation: As in the attribute.
        ranks: Rank of each operand.

    Raises:
        MalformedNode: If the equation does not fit the operands or names an unknown index.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    shown = _short(equation)
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise MalformedNode(
            "bad-equation",
            f"the equation `{shown}` has {len(texts)} operands, not {len(ranks)}",
        )
    terms = [_term(text, rank, equation) for text, rank in zip(texts, ranks, strict=True)]
    dots = max((tuple(n for n in term if n[0] == ".") for term in terms), key=len)
    if arrow:
        head, found, tail = right.partition("...")
        output = (*head, *(dots if found else ()), *tail)
    else:
        count = Counter(name for term in terms for name in term)
        output = (*dots, *sorted(n for n, c in count.items() if c == 1 and n[0] != "."))
    known = {name for term in terms for name in term}
    if len(set(output)) < len(output) or not set(output) <= known or not set(dots) <= set(output):
        raise MalformedNode("bad-equation", f"the output of `{shown}` cannot be formed")
    return terms, output


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


_MOST = 80
"""Characters of an equation that a message has."""


def _term(text: str, rank: int, equation: str) -> Labels:
    head, found, tail = text.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not found):
        raise MalformedNode(
            "bad-equation",
            f"`{_short(text)}` of `{_short(equation)}` does not fit an operand of rank {rank}",
        )
    return (*head, *(f".{i}" for i in reversed(range(hidden))), *tail)
