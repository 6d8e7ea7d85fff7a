"""The equation of Einsum, read into one index name per dimension."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.ops.view import MalformedNode

__all__ = ["Labels", "parse", "terms"]

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
    texts, right = terms(equation, len(ranks))
    operands = [_term(text, rank, equation) for text, rank in zip(texts, ranks, strict=True)]
    dots = max((tuple(n for n in term if n[0] == ".") for term in operands), key=len)
    if right is not None:
        head, found, tail = right.partition("...")
        output = (*head, *(dots if found else ()), *tail)
    else:
        count = Counter(name for term in operands for name in term)
        output = (*dots, *sorted(n for n, c in count.items() if c == 1 and n[0] != "."))
    if not set(dots) <= set(output):
        raise MalformedNode(
            "bad-equation", f"the output of the equation `{_short(equation)}` lacks the ellipsis"
        )
    return operands, output


def terms(equation: str, operands: int) -> tuple[list[str], str | None]:
    """Return the terms of the operands, and that of the output; None where it has none.

    Args:
        equation: As in the attribute.
        operands: How many there are; of whatever rank.

    Raises:
        MalformedNode: If no operands of any rank fit the equation.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    name = f"the equation `{_short(equation)}`"
    if len(texts) != operands:
        raise MalformedNode(
            "bad-equation", f"{name} has {counted(len(texts), 'term')}, expected {operands}"
        )
    for text in (*texts, right):
        if _TERM.fullmatch(text) is None:
            raise MalformedNode(
                "bad-equation",
                f"{name} has the term `{_short(text)}`, expected letters and at most one `...`",
            )
    letters = right.replace("...", "")
    for letter in sorted(set(letters)):
        if letters.count(letter) > 1 or letter not in left:
            what = "twice" if letters.count(letter) > 1 else "that no operand has"
            raise MalformedNode("bad-equation", f"the output of {name} has `{letter}` {what}")
    return texts, right if arrow else None


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


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
