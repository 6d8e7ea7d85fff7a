"""A product with a matrix of weights, in each way of storing it."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from benchmarks.real_models.configuration import BLOCK, Configuration
from benchmarks.real_models.data import NUMPY, ONNX, DataFile

__all__ = ["Linear", "Nodes", "nibbles", "normal"]

_FOUR_BIT_STD = 2.5
_EIGHT_BIT_STD = 32.0
"""Standard deviations of quantised weights, in steps; few of them are clipped."""


class Nodes(Protocol):
    """Adds a node; returns its output of that name."""

    def __call__(
        self, kind: str, output: str, *inputs: str, domain: str = "", **attributes: Any
    ) -> str: ...


def normal(std: float, dtype: str, mean: float = 0.0) -> Any:
    """Return what draws values of a normal distribution in a type of the models."""

    def draw(rng: np.random.Generator, count: int) -> npt.NDArray[Any]:
        drawn = rng.standard_normal(count, dtype=np.float32)
        return (drawn * np.float32(std) + np.float32(mean)).astype(NUMPY[dtype])

    return draw


class Linear:
    """Adds products with matrices, as the configuration stores them."""

    def __init__(self, configuration: Configuration, data: DataFile, nodes: Nodes) -> None:
        self._c, self._data, self._nodes = configuration, data, nodes

    def __call__(self, name: str, x: str, k: int, n: int, magnitude: float) -> str:
        """Multiply by a matrix of (K, N).

        Args:
            name: Prefix of the names of all that is added.
            x: What is multiplied, `(B, L, K)`.
            k: K, its last dimension.
            n: N, that of the result.
            magnitude: About the standard deviation of `x`, for scales of activations.

        Returns:
            The name of the product, `(B, L, N)`.
        """
        if self._c.quantisation == "matmulnbits":
            return self._bits(name, x, k, n)
        if self._c.quantisation == "dq-int4":
            return self._nodes("MatMul", f"{name}.MatMul", x, self._blocks(name, k, n))
        if self._c.quantisation == "qdq-int8":
            rounded = self._rounded(f"{name}.input", x, magnitude)
            return self._nodes("MatMul", f"{name}.MatMul", rounded, self._columns(name, k, n))
        return self.plain(name, x, self.matrix(f"{name}.weight", n, k))

    def plain(self, name: str, x: str, weight: str) -> str:
        """Multiply by a matrix that is stored as `(N, K)`."""
        turned = self._nodes("Transpose", f"{name}.Transpose", weight, perm=[1, 0])
        return self._nodes("MatMul", f"{name}.MatMul", x, turned)

    def matrix(self, name: str, rows: int, columns: int) -> str:
        """Store a matrix in the type of the model; return its name."""
        dtype = self._c.dtype
        draw = normal(self._c.std, dtype)
        return self._data.draw(name, ONNX[dtype], (rows, columns), rows * columns, draw)

    def scale(self, name: str, value: float) -> str:
        """Store a scalar in the type of the model; return its name."""
        return self._data.put(name, np.array(value, NUMPY[self._c.dtype]))

    def _bits(self, name: str, x: str, k: int, n: int) -> str:
        blocks = k // BLOCK
        inputs = [
            self._data.draw(
                f"{name}.weight",
                TensorProto.UINT8,
                (n, blocks, BLOCK // 2),
                n * k // 2,
                nibbles(unsigned=True),
            ),
            self.scales(f"{name}.scales", n, blocks),
        ]
        if self._c.zero_points:
            packed = (blocks + 1) // 2
            inputs.append(
                self._data.draw(
                    f"{name}.zero_points", TensorProto.UINT8, (n, packed), n * packed, _zeros
                )
            )
        return self._nodes(
            "MatMulNBits",
            f"{name}.MatMulNBits",
            x,
            *inputs,
            domain="com.microsoft",
            K=k,
            N=n,
            bits=4,
            block_size=BLOCK,
            accuracy_level=4,
        )

    def _blocks(self, name: str, k: int, n: int) -> str:
        """Return a matrix `(K, N)` that DequantizeLinear makes of 4 bits, in blocks along K."""
        unsigned = self._c.zero_points
        element = TensorProto.UINT4 if unsigned else TensorProto.INT4
        weight = self._data.draw(
            f"{name}.weight", element, (k, n), (k * n + 1) // 2, nibbles(unsigned=unsigned)
        )
        inputs = [weight, self.scales(f"{name}.scales", k // BLOCK, n)]
        if unsigned:
            count = k // BLOCK * n
            dims = (k // BLOCK, n)
            zeros = self._data.draw(f"{name}.zero_points", element, dims, (count + 1) // 2, _zeros)
            inputs.append(zeros)
        return self._nodes(
            "DequantizeLinear", f"{name}.dequantized", *inputs, axis=0, block_size=BLOCK
        )

    def _columns(self, name: str, k: int, n: int) -> str:
        """Return a matrix `(K, N)` that DequantizeLinear makes of int8, a scale per column."""
        weight = self._data.draw(f"{name}.weight", TensorProto.INT8, (k, n), k * n, _int8)
        scales = self._data.draw(
            f"{name}.scales", ONNX[self._c.dtype], (n,), n, self._spread(_EIGHT_BIT_STD)
        )
        zeros = self._data.put(f"{name}.zero_points", np.zeros(n, np.int8))
        return self._nodes("DequantizeLinear", f"{name}.dequantized", weight, scales, zeros, axis=1)

    def _rounded(self, name: str, x: str, magnitude: float) -> str:
        scale = self.scale(f"{name}.scale", magnitude * 10 / 255)
        zero = self._data.put(f"{name}.zero_point", np.array(128, np.uint8))
        quantised = self._nodes("QuantizeLinear", f"{name}.quantised", x, scale, zero)
        return self._nodes("DequantizeLinear", f"{name}.dequantised", quantised, scale, zero)

    def scales(self, name: str, *dims: int) -> str:
        """Store scales of 4-bit weights, so many of each block; return their name."""
        draw = self._spread(_FOUR_BIT_STD)
        count = math.prod(dims)
        return self._data.draw(name, ONNX[self._c.dtype], dims, count, draw)

    def _spread(self, steps: float) -> Any:
        """Return what draws scales that differ by up to a half, so that none is like another."""

        def draw(rng: np.random.Generator, count: int) -> npt.NDArray[Any]:
            factors = rng.random(count, dtype=np.float32) * np.float32(0.5) + np.float32(0.75)
            return (factors * np.float32(self._c.std / steps)).astype(NUMPY[self._c.dtype])

        return draw


def nibbles(*, unsigned: bool) -> Any:
    """Return what draws bytes of two 4-bit numbers of a normal distribution, about 8 or 0."""

    def draw(rng: np.random.Generator, count: int) -> npt.NDArray[Any]:
        drawn = rng.standard_normal((2, count), dtype=np.float32) * np.float32(_FOUR_BIT_STD)
        numbers = np.clip(np.rint(drawn), -8, 7).astype(np.int8).view(np.uint8)
        if unsigned:
            numbers += 8
        return (numbers[0] & 15) | (numbers[1] << 4)

    return draw


def _zeros(rng: np.random.Generator, count: int) -> npt.NDArray[Any]:
    """Draw bytes of two zero points from 6 to 10."""
    numbers = rng.integers(6, 11, (2, count), dtype=np.uint8)
    packed: npt.NDArray[Any] = numbers[0] | (numbers[1] << 4)
    return packed


def _int8(rng: np.random.Generator, count: int) -> npt.NDArray[Any]:
    drawn = rng.standard_normal(count, dtype=np.float32) * np.float32(_EIGHT_BIT_STD)
    return np.clip(np.rint(drawn), -127, 127).astype(np.int8)
