"""Products of matrices: Einsum, Gemm, MatMul and the quantized forms."""

from __future__ import annotations

import functools
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import KEPT_SHAPES, require_room
from onnx_kvtool.runtime.kernels.conversion.cast import convert
from onnx_kvtool.runtime.kernels.conversion.rounding import INTEGER_RANGES, as_doubles, round_to
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines

# The equation of Einsum, made explicit.


_ELLIPSIS = "..."


def explicit_equation(equation: str, shapes: Sequence[Ints]) -> str:
    """Return an equation with an output term and with letters for the dimensions of ellipses.

    By Einsum-12, an ellipsis stands for the same number of dimensions in every term, and these
    broadcast. Without `->`, the output has the dimensions of the ellipsis and then the letters that
    occur once, in the order of ASCII. An ellipsis that the output leaves out is summed.

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
        for character in term.replace(_ELLIPSIS, "", 1):
            if character not in string.ascii_letters:
                raise KernelError(f"`equation` {equation} has `{character}` in the term `{term}`")
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


def _letters(term: str) -> str:
    return "".join(character for character in term if character in string.ascii_letters)


def _check_sizes(terms: Sequence[str], shapes: Sequence[Ints], dots: str, equation: str) -> None:
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


# Einsum.


def einsum_12(*Inputs: Array, equation: str) -> Array:
    """Compute Einsum from version 12 on: sums of products by an equation (`explicit_equation`).

    Narrow floats are computed in float32 and rounded once; integers wrap around. Sizes of a letter
    must agree, also where one is 1, which numpy would broadcast: the text broadcasts the
    dimensions of ellipses only.

    Raises:
        KernelError: If the equation is wrong or does not fit the operands.
    """
    explicit = explicit_equation(equation, [operand.shape for operand in Inputs])
    operands: list[Any] = [widened(operand) for operand in Inputs]
    try:
        result = np.asarray(np.einsum(explicit, *operands, optimize=len(operands) > 1))
    except ValueError as error:  # it takes 63 operands, and 64 dimensions
        raise KernelError(f"numpy says: {error}") from error
    return np.array(narrowed(result, Inputs[0].dtype))


# Matrix products over all dtypes, with the checks that they share.


_EXACT = 2.0**53


def matrix_product(A: Array, B: Array) -> Array:
    """Return the product of two stacks of matrices in their dtype, as `numpy.matmul` defines it.

    Narrow floats are multiplied and added in float32 and rounded once. Integers wrap around; as
    long as no sum can exceed 53 bits they go through float64, which is exact then and many times
    faster. The shapes fit (`check_factors`).
    """
    if A.dtype.kind not in "iu":
        return narrowed(np.matmul(widened(A), widened(B)), A.dtype)
    if _magnitude(A) * _magnitude(B) * A.shape[-1] < _EXACT:
        product = np.matmul(A.astype(np.float64), B.astype(np.float64))
        wide = np.asarray(product).astype(np.int64)
        return wide.astype(A.dtype)
    return np.asarray(np.matmul(A, B))


def check_factors(A: Array, B: Array, names: tuple[str, str] = ("A", "B")) -> None:
    """Check that the shapes of two factors fit, as `numpy.matmul` wants them.

    Raises:
        KernelError: If one is a scalar, if their common dimension K differs, if the dimensions
            before the matrices do not broadcast, or if there is no room for the product.
    """
    require_room(_product_shape(A.shape, B.shape, names), A.dtype, "the product")


@functools.lru_cache(KEPT_SHAPES)
def _product_shape(left: Ints, right: Ints, names: tuple[str, str]) -> Ints:
    a, b = names
    for name, shape in ((a, left), (b, right)):
        if not shape:
            raise KernelError(f"`{name}` is a scalar, expected rank 1 or more")
    axis = -2 if len(right) > 1 else -1
    if left[-1] != right[axis]:
        raise KernelError(
            f"axis -1 of `{a}` with shape {left} has size {left[-1]}, "
            f"expected {right[axis]} as axis {axis} of `{b}` with shape {right}"
        )
    stacks = zip(reversed(left[:-2]), reversed(right[:-2]), strict=False)
    for back, (one, other) in enumerate(stacks, start=3):
        if one != other and 1 not in (one, other):
            raise KernelError(
                f"`{a}` with shape {left} and `{b}` with shape {right} do not broadcast: "
                f"axis {-back} has sizes {one} and {other}"
            )
    stack = np.broadcast_shapes(left[:-2], right[:-2])
    return (*stack, *left[-2:-1], *right[-1:])


def _magnitude(x: Array) -> float:
    if x.size == 0:
        return 0.0
    return max(abs(float(x.max())), abs(float(x.min())))


# Gemm.


def gemm_7(
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Compute Gemm from version 7 on: alpha * A' * B' + beta * C.

    Narrow floats are computed in float32 and rounded once. Integers are exact and wrap around while
    both factors are 1; with others, the rest is computed in float64 and truncated. A `beta` of 0
    does not hide NaN in `C`: the text has no exception.

    Raises:
        KernelError: If `A` or `B` is no matrix, K differs, or `C` does not broadcast to (M, N).
    """
    for name, matrix in (("A", A), ("B", B)):
        if matrix.ndim != 2:
            raise KernelError(f"`{name}` has shape {matrix.shape}, expected rank 2")
    left = A.T if transA else A
    right = B.T if transB else B
    if left.shape[1] != right.shape[0]:
        raise KernelError(
            f"`A` with shape {A.shape} and `B` with shape {B.shape} have no common dimension: "
            f"axis {0 if transA else 1} of `A` has size {left.shape[1]}, "
            f"axis {1 if transB else 0} of `B` has {right.shape[0]}",
            help="look at `transA` and `transB`",
        )
    check_factors(left, right)
    _check_addend(C, (left.shape[0], right.shape[1]))
    whole = A.dtype.kind in "iu"
    result = matrix_product(left, right) if whole else np.matmul(widened(left), widened(right))
    addend: Array | None = None if C is None else widened(C)
    if whole and (alpha != 1 or (addend is not None and beta != 1)):
        result = result.astype(np.float64)
        addend = None if addend is None else addend.astype(np.float64)
    if alpha != 1:
        result = result * np.asarray(alpha, result.dtype)
    if addend is not None:
        result = result + (addend if beta == 1 else addend * np.asarray(beta, addend.dtype))
    return convert(np.asarray(result), A.dtype)


def _check_addend(C: Array | None, shape: tuple[int, int]) -> None:
    if C is None:
        return
    if C.ndim > 2:
        raise KernelError(f"`C` has shape {C.shape}, expected rank 2 at most")
    for back, (size, wanted) in enumerate(
        zip(reversed(C.shape), reversed(shape), strict=False), start=1
    ):
        if size not in (1, wanted):
            raise KernelError(
                f"`C` with shape {C.shape} does not broadcast to {shape}: "
                f"axis {-back} has size {size}, expected 1 or {wanted}"
            )


# MatMul.


def mat_mul_1(A: Array, B: Array) -> Array:
    """Compute MatMul of every version: the product as `numpy.matmul` defines it.

    See `matrix_product` for the precision. A vector counts as one row of `A` or one column of `B`,
    which the result does not have.

    Raises:
        KernelError: If one input is a scalar, K differs or the other dimensions do not broadcast.
    """
    check_factors(A, B)
    return matrix_product(A, B)


# MatMulInteger and QLinearMatMul.


Doubles = npt.NDArray[np.float64]


def mat_mul_integer_10(
    A: Array,
    B: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
) -> Array:
    """Compute MatMulInteger-10: the product of the quantized values without their zero points.

    Exact in float64: 2^37 terms of 16 bits are needed to exceed it. Sums beyond int32 wrap around,
    which the text allows.

    `a_zero_point` is a scalar, (M,) or (..., M, 1). `b_zero_point` is a scalar, (N,) or
    (..., 1, N).

    Raises:
        KernelError: If shapes do not fit.
    """
    check_factors(A, B)
    a = _centered(A, a_zero_point, "a_zero_point", rows=True)
    b = _centered(B, b_zero_point, "b_zero_point", rows=False)
    return np.asarray(np.matmul(a, b)).astype(np.int64).astype(np.int32)


def q_linear_mat_mul_10(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Compute QLinearMatMul of versions 10 and 21: the product of two quantized factors, quantized.

    Scales and quotient are taken in float64, so that only the rounding to even shows; runtimes
    that multiply the scales in float32 may be off by one where that is a tie.

    `a_scale` and `y_scale` are scalars, (M,) or (..., M, 1). `b_scale` is a scalar, (N,) or
    (..., 1, N). Each zero point has the shape of its scale.

    Raises:
        KernelError: If shapes do not fit.
    """
    check_factors(a, b, ("a", "b"))
    left = _centered(a, a_zero_point, "a_zero_point", rows=True)
    right = _centered(b, b_zero_point, "b_zero_point", rows=False)
    left = left * _laid_out(a_scale, a.shape, "a_scale", rows=True)
    right = right * _laid_out(b_scale, b.shape, "b_scale", rows=False)
    product: Doubles = np.asarray(np.matmul(left, right))
    quotient = product / _laid_out(y_scale, product.shape, "y_scale", rows=True)
    zero = _laid_out(y_zero_point, product.shape, "y_zero_point", rows=True)
    dtype = y_zero_point.dtype
    if dtype not in INTEGER_RANGES:
        return round_to(np.asarray(quotient + zero), dtype)
    low, high = INTEGER_RANGES[dtype]
    return np.clip(np.rint(quotient) + zero, low, high).astype(np.int64).astype(dtype)


def _centered(quantized: Array, zero_point: Array | None, name: str, *, rows: bool) -> Doubles:
    values = as_doubles(quantized)
    if zero_point is None:
        return values
    return np.asarray(values - _laid_out(zero_point, quantized.shape, name, rows=rows))


def _laid_out(values: Array, shape: Ints, name: str, *, rows: bool) -> Doubles:
    """Return a value per tensor, row or column so that it broadcasts to a stack of matrices."""
    doubles = as_doubles(values)
    if values.size == 1:
        return doubles.reshape(())
    if values.ndim == 1 and rows and len(shape) > 1:
        doubles = doubles[:, None]
    kept = -2 if rows else -1
    for back in range(1, doubles.ndim + 1):
        size = doubles.shape[-back]
        fits = back <= len(shape) and (
            size in (1, shape[-back]) if -back == kept or back > 2 else size == 1
        )
        if not fits:
            raise KernelError(
                f"`{name}` has shape {values.shape}, expected (), one element per "
                f"{'row' if rows else 'column'}, or such a stack: the matrices have shape {shape}"
            )
    return doubles


# Operators that are sums of products: of matrices, and by an equation.


LINES: Lines = {
    "MatMul": {1: mat_mul_1},
    "Gemm": {7: gemm_7},
    "MatMulInteger": {10: mat_mul_integer_10},
    "QLinearMatMul": {10: q_linear_mat_mul_10},
    "Einsum": {12: einsum_12},
}
"""Operators of this module with their kernels, oldest first."""
