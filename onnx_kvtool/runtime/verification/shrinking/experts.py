"""How mixtures of experts tie the widths of their products."""

from __future__ import annotations

from onnx_kvtool.runtime.verification.shrinking.call import Call
from onnx_kvtool.runtime.verification.shrinking.quantised import blocks_of, codes
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, Size, bind, factor, pin

__all__ = ["mixture_of_experts", "quantized_mixture_of_experts", "top_k"]

_INTERLEAVED = 1
"""`swiglu_fusion`: gate and value of each inner feature stand side by side."""


def mixture_of_experts(call: Call) -> list[Shape | None] | None:
    """Weights of (experts, out, in) lead from the width to an inner one and back.

    There stay as many experts, of which a token chooses as many.
    """
    return _tied(call, ((2, 3), (4, 5), (6, 7)), None)


def quantized_mixture_of_experts(call: Call) -> list[Shape | None] | None:
    """Weights are codes with a scale for each row of an expert, or for each block of it.

    Weights that come with scales of another kind keep their sizes.
    """
    if any(call.has(index) for index in range(15, len(call.node.input))):
        return None
    if call.shape(14) is not None:
        pin(call.shape(14))
    return _tied(call, ((2, 4), (5, 7), (8, 10)), call.number("expert_weight_bits"))


def _tied(
    call: Call, places: tuple[tuple[int, int], ...], bits: int | None
) -> list[Shape | None] | None:
    """Tie what the products read.

    Args:
        call: The node.
        places: Of each product, which inputs are its weight and its bias.
        bits: Of a code; None for weights that are no codes.
    """
    shape, router = call.shape(0), call.shape(1)
    weights = [call.shape(weight) if call.has(weight) else None for weight, _ in places]
    first, second, third = weights
    if shape is None or first is None or second is None or {len(first), len(second)} != {3}:
        return None
    pin(router[-1:] if router else None, first[:1], second[:1])
    width, inner = shape[-1], _unpacked(second[2], bits)
    if width.number is None or inner.number is None:
        return None
    second[1].join(width)
    if first[1].number == inner.number:
        first[1].join(inner)
    elif first[1].number == 2 * inner.number:
        is_interleaved = call.number("swiglu_fusion") == _INTERLEAVED
        factor([first[1]], [inner, bind(2)] if is_interleaved else [bind(2), inner])
    else:
        return None
    if third is not None:
        if len(third) != 3:
            return None
        pin(third[:1])
        third[1].join(inner)
    for number, (columns, (weight, bias)) in enumerate(
        zip((width, inner, width), places, strict=True)
    ):
        read = weights[number]
        if read is None:
            continue
        if bits is None:
            read[2].join(columns)
        elif not _quantised(call, number, weight, read, columns, bits):
            return None
        if (added := call.shape(bias)) is not None:
            if len(added) != 2:
                return None
            pin(added[:1])
            added[1].join(read[1])
    return [shape]


def _unpacked(size: Size, bits: int | None) -> Size:
    """Return how many numbers so many bytes hold."""
    if bits is None or size.number is None:
        return size
    width = bind(size.number * (8 // bits), is_pinned=False)
    codes(size, width, bits)
    return width


def _quantised(
    call: Call, number: int, weight: int, packed: Shape, columns: Size, bits: int
) -> bool:
    """Tie codes, scales and zero points of one product; return whether they fit."""
    own = call.number(f"fc{number + 1}_expert_weight_bits")
    if own not in (0, bits) or not codes(packed[2], columns, bits):
        return False
    scales, zero = (
        call.shape(weight + 1),
        call.shape(11 + number) if call.has(11 + number) else None,
    )
    block = call.number("block_size")
    if scales is None or len(scales) != (3 if block else 2):
        return False
    pin(scales[:1], zero[:1] if zero else None)
    scales[1].join(packed[1])
    if block:
        if zero:
            zero[1].join(packed[1])
        return blocks_of(columns, scales[2], block, zero, bits)
    if zero and not codes(zero[1], packed[1], bits):
        pin(zero, packed[1:2])
    return True


def top_k(call: Call) -> list[Shape | None] | None:
    """What is chosen from stays as it is."""
    shape, count = call.shape(0), call.constant(1)
    axis = call.axis(shape)
    if shape is None or axis is None:
        return None
    pin(shape[axis : axis + 1])
    number = count[0] if count else None
    return [[*shape[:axis], bind(number), *shape[axis + 1 :]] for _ in range(2)]
