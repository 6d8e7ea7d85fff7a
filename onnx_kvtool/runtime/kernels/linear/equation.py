"""The equation of Einsum, made explicit."""

from __future__ import annotations

import string
from collections.abc import Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError

__all__ = ["explicit_equation"]

_ELLIPSIS = "..."


def explicit_equation(equation: str, shapes: Sequence[tuple[int, ...]]) -> str:
    """Return an equation with an output term and with letters for the dimensions of ellipses.

    The rules of Einsum-12: an ellipsis stands for the same number of dimensions in every term,
    which broadcast; without `->` the output has the dimensions of the ellipsis and then the letters
    that occur once, in the order of ASCII. An ellipsis that the output leaves out is summed.

    Args:
        equation: As the attribute has it; spaces do not count.
        shapes: Those of the operands.

    Raises:
        KernelError: If a term has other characters, two ellipses, or not the rank of its operand;
            if a letter stands for two sizes; if dimensions of ellipses do not broadcast; if the
            output names a letter twice or one that no operand has; if terms and operands differ in
            number.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise KernelError(
            f"`equation` has {counted(len(terms), 'term')}, expected {len(shapes)}: {equation}"
        )
    for term in [*terms, right]:
        _check_term(term, equation)
    dotted = {len(s) - len(_letters(t)) for t, s in zip(terms, shapes, strict=True) if "." in t}
    if len(dotted) > 1:
        raise KernelError(
            f"the ellipses of `equation` {equation} stand for {sorted(dotted)} dimensions, "
            f"expected the same number in every term"
        )
    used = set(_letters(equation))
    free = [letter for letter in string.ascii_letters if letter not in used]
    count = dotted.pop() if dotted else 0
    if count < 0 or count > len(free):
        raise KernelError(f"`equation` {equation} has terms longer than the ranks of the operands")
    dots = "".join(free[:count])
    filled = [term.replace(_ELLIPSIS, dots) for term in terms]
    _check_sizes(filled, shapes, dots, equation)
    if arrow:
        output = right.replace(_ELLIPSIS, dots)
    else:
        once = [letter for letter in sorted(used) if left.count(letter) == 1]
        output = dots + "".join(once)
    if len(set(output)) != len(output) or not set(output) <= set("".join(filled)):
        raise KernelError(
            f"the output of `equation` {equation} must name letters of the operands, each once"
        )
    return f"{','.join(filled)}->{output}"


def _check_term(term: str, equation: str) -> None:
    rest = term.replace(_ELLIPSIS, "", 1)
    for character in rest:
        if character not in string.ascii_letters:
            raise KernelError(f"`equation` {equation} has `{character}` in the term `{term}`")


def _letters(term: str) -> str:
    return "".join(character for character in term if character in string.ascii_letters)


def _check_sizes(
    terms: Sequence[str], shapes: Sequence[tuple[int, ...]], dots: str, equation: str
) -> None:
    sizes: dict[str, tuple[int, int]] = {}
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(term) != len(shape):
            raise KernelError(
                f"`Inputs`[{number}] has shape {shape}, expected rank {len(term)} "
                f"by the term `{term}` of `equation` {equation}"
            )
        for letter, size in zip(term, shape, strict=True):
            known, owner = sizes.setdefault(letter, (size, number))
            if size == known or (letter in dots and size == 1):
                continue
            if letter in dots and known == 1:
                sizes[letter] = (size, number)
                continue
            what = "the ellipsis" if letter in dots else f"`{letter}`"
            raise KernelError(
                f"{what} of `equation` {equation} is {known} in `Inputs`[{owner}] with shape "
                f"{shapes[owner]} and {size} in `Inputs`[{number}] with shape {shape}"
            )
