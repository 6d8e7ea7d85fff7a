"""A node as the rules of shrinking see it: its operands' shapes and small constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from onnx_kvtool.runtime.verification.shrinking.sizes import Shape

__all__ = ["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One node.

    Attributes:
        node: The node.
        shapes: Shapes of its inputs; None for an unknown rank and for an input that is left out.
        integers: What its inputs hold where they are small constants of integers.
        is_token: For each input, whether it holds token ids that are fed.
    """

    node: onnx.NodeProto
    shapes: Sequence[Shape | None]
    integers: Sequence[list[int] | None]
    is_token: Sequence[bool]

    def shape(self, index: int) -> Shape | None:
        """Return the shape of an input; None if it is left out or of unknown rank."""
        return self.shapes[index] if index < len(self.shapes) else None

    def constant(self, index: int) -> list[int] | None:
        """Return the integers that an input is known to hold."""
        return self.integers[index] if index < len(self.integers) else None

    def number(self, name: str, default: int) -> int:
        """Return the value of an integer attribute; `default` where the node has none."""
        given = self._given(name, onnx.AttributeProto.INT)
        return default if given is None else given.i

    def numbers(self, name: str) -> list[int] | None:
        """Return the value of an attribute that is a list of integers; None without one."""
        given = self._given(name, onnx.AttributeProto.INTS)
        return None if given is None else list(given.ints)

    def _given(self, name: str, kind: int) -> onnx.AttributeProto | None:
        found = (a for a in self.node.attribute if a.name == name and a.type == kind)
        return next(found, None)
