"""What onnx.reference takes although the text of an operator does not allow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis, read_integers
from onnx_kvtool.runtime.kernels.kernel import Array, Value

__all__ = ["demand_legal"]

_Check = Callable[[Sequence[Any], Mapping[str, Any]], None]


def demand_legal(op: str, inputs: Sequence[Value], attributes: Mapping[str, Value]) -> None:
    """Refuse what onnx.reference would compute something of.

    Args:
        op: An operator of the default domain.
        inputs: Its inputs, of types that its schema allows.
        attributes: Its attributes, with the defaults of those that the node leaves out.

    Raises:
        KernelError: If the text of the operator does not allow them.
    """
    if (check := _CHECKS.get(op)) is not None:
        check(inputs, attributes)


def _reverse_sequence(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    data, lengths = inputs
    batch, time = attributes["batch_axis"], attributes["time_axis"]
    if sorted((batch, time)) != [0, 1]:
        raise KernelError(
            f"`batch_axis` is {batch} and `time_axis` {time}, expected 0 and 1, or 1 and 0"
        )
    if data.ndim < 2:
        raise KernelError(f"`input` has shape {data.shape}, expected two dimensions or more")
    given = read_integers(lengths, "sequence_lens")
    if len(given) != data.shape[batch]:
        raise KernelError(
            f"`sequence_lens` has {len(given)} elements, expected {data.shape[batch]}, the size of "
            f"axis {batch} of `input`"
        )
    for position, length in enumerate(given):
        if not 0 <= length <= data.shape[time]:
            raise KernelError(
                f"`sequence_lens[{position}]` is {length}, expected 0 to {data.shape[time]}, the "
                f"size of axis {time} of `input`"
            )


def _split_to_sequence(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Sizes of 0 are legal in a list: the text asks for positive ones, and then for 0 or more."""
    data: Array = inputs[0]
    axis = count_axis(attributes["axis"], data.ndim, of="input")
    split: Array | None = inputs[1] if len(inputs) > 1 else None
    if split is None:
        return
    sizes = read_integers(split, "split", (np.int32, np.int64), or_scalar=True)
    if split.ndim == 0:
        if sizes[0] < 1:
            raise KernelError(f"`split` is {sizes[0]}, expected 1 or more")
        return
    for position, size in enumerate(sizes):
        if size < 0:
            raise KernelError(f"`split[{position}]` is {size}, expected 0 or more")
    if sum(sizes) != data.shape[axis]:
        raise KernelError(
            f"`split` {sizes} adds up to {sum(sizes)}, expected {data.shape[axis]}, the size of "
            f"axis {axis} of `input`"
        )


def _depth_to_space(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    mode = attributes.get("mode", "DCR")  # which came with opset 11
    if mode not in ("DCR", "CRD"):
        raise KernelError(f"`mode` is `{mode}`, expected `DCR` or `CRD`")


_CHECKS: dict[str, _Check] = {
    "DepthToSpace": _depth_to_space,
    "ReverseSequence": _reverse_sequence,
    "SplitToSequence": _split_to_sequence,
}
