"""Cast and CastLike."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.conversion.convert import convert, element_dtype
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["cast_6", "cast_like_15"]


def cast_6(
    input: Array, *, to: int, saturate: int = 1, round_mode: str = "up", context: Context
) -> tuple[Array]:
    """Compute Cast from version 6 on: see `convert` for every pair of types.

    Versions before 19 have no float 8 types, those before 24 no float8e8m0; the defaults of the
    attributes that they lack have no effect on the types that they have.

    Args:
        input: Any shape, any dtype but the complex ones.
        to: The element type wanted, by its number in `onnx.TensorProto.DataType`.
        saturate: Whether float 8 types give their largest number for what is out of range.
        round_mode: How to round to float8e8m0: `up`, `down` or `nearest`.
        context: Told which elements are undefined.

    Raises:
        KernelError: As `convert`, or if `to` is the number of no type.
    """
    dtype = element_dtype(to, "to")
    warn = context.warn
    return (convert(input, dtype, saturate=saturate != 0, round_mode=round_mode, warn=warn),)


def cast_like_15(
    input: Array,
    target_type: Array,
    *,
    saturate: int = 1,
    round_mode: str = "up",
    context: Context,
) -> tuple[Array]:
    """Compute CastLike from version 15 on: Cast to the dtype of `target_type`, of any shape."""
    dtype, warn = target_type.dtype, context.warn
    return (convert(input, dtype, saturate=saturate != 0, round_mode=round_mode, warn=warn),)
