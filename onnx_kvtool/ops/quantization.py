"""The scales of QuantizeLinear and DequantizeLinear: which shapes the specification allows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Misfit", "scale_misfit"]

_Dim = int | str | None


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wrong.

    Attributes:
        subject: `scale`, `zero_point` or `block_size`.
        text: One sentence without a full stop.
        help: What to do; None where the text says it.
    """

    subject: str
    text: str
    help: str | None = None


def scale_misfit(
    x: Sequence[_Dim] | None,
    scale: Sequence[_Dim] | None,
    zero_point: Sequence[_Dim] | None,
    axis: int,
    block_size: int,
    names: tuple[str, str] = ("scale", "zero_point"),
) -> Misfit | None:
    """Return what certainly breaks the specification; None when nothing is known to.

    Without blocks the scale is a scalar, one element in 1-D as exporters write it, or 1-D of the
    size of `axis`; with blocks it has the shape of the input with ceil(size / `block_size`) along
    `axis`, so that one number for the whole input has no blocks. The zero point has the shape of
    the scale; one element may be a scalar here and 1-D there.

    Args:
        x: Dimensions of the input; None for an unknown rank, and each that is unknown.
        scale: Those of the scale.
        zero_point: Those of the zero point; None also where there is none.
        axis: From the back if negative. One out of range is not judged.
        block_size: 0 without blocks.
        names: What to call scale and zero point.
    """
    if block_size < 0:
        text = f"`block_size` is {block_size}, expected a positive number"
        return Misfit("block_size", text, "leave it out where the scale has no blocks")
    if scale is None:
        return None
    is_single = tuple(scale) in ((), (1,))
    alike = is_single and zero_point is not None and tuple(zero_point) in ((), (1,))
    if zero_point is not None and not alike and _differ(zero_point, scale):
        text = f"`{names[1]}` has shape {_text(zero_point)}, expected {_text(scale)}"
        return Misfit("zero_point", f"{text} as `{names[0]}`")
    got = f"`{names[0]}` has shape {_text(scale)}, expected"
    if x is None or not -len(x) <= axis < len(x):
        if block_size and not scale:
            return Misfit("scale", f"{got} the rank of the input, which has blocks of {block_size}")
        return None
    axis, size = axis % len(x), x[axis]
    if block_size:
        blocks = -(-size // block_size) if isinstance(size, int) else None
        expected = (*x[:axis], blocks, *x[axis + 1 :])
        if not _differ(scale, expected):
            return None
        place = f"blocks of {block_size} along axis {axis} of `x` with shape {_text(x)}"
        text = f"{got} {_text(expected)}: {place}"
        return Misfit("scale", text, "leave `block_size` out" if is_single else None)
    if is_single or not _differ(scale, (size,)):
        return None
    help = "give `block_size` if the scale has the rank of `x`"
    place = f"axis {axis} of `x` with shape {_text(x)}"
    return Misfit(
        "scale",
        f"{got} () or {_text((size,))}: {place}",
        help if len(scale) == len(x) > 1 else None,
    )


def _differ(a: Sequence[_Dim], b: Sequence[_Dim]) -> bool:
    """Return whether two shapes are certainly different."""
    pairs = zip(a, b, strict=False)
    numbers = any(isinstance(m, int) and isinstance(n, int) and m != n for m, n in pairs)
    return len(a) != len(b) or numbers


def _text(shape: Sequence[_Dim]) -> str:
    inner = ", ".join("?" if dim is None else str(dim) for dim in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
