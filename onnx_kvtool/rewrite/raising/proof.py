"""What a rule is given, and what it proves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import AssumedValue
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.rewrite.raising.arrangement import Sizes
from onnx_kvtool.rewrite.raising.stage import Assumptions
from onnx_kvtool.rewrite.raising.start import Measures
from onnx_kvtool.symbolic.expressions import Dimension, Expr, text


@dataclass(frozen=True, slots=True)
class ProvenUpdate:
    """A node that provably writes row s of an update to row `start + s` of a tensor.

    Attributes:
        data: The tensor that is written to, (D0, ..., S, ..., Dn).
        updates: The rows.
        sizes: What is known of the size of each axis of `updates`.
        output: The result, as `data`.
        axis: The axis of `data` along which the rows count.
        places: For each axis of `data` the same axis in `updates`; None for an axis of size 1 that
            `updates` does not have. Axes of `updates` that do not occur have size 1.
        start: The first row, over the coordinates of `data`.
        mode: Whether rows wrap at the end of the axis.
    """

    data: ir.Value
    updates: ir.Value
    sizes: Sizes
    output: ir.Value
    axis: int
    places: tuple[int | None, ...]
    start: Expr
    mode: Mode


@dataclass(frozen=True, slots=True)
class Roll:
    """A tensor whose row j is row `(j + shift) mod W` of another one of W rows.

    Attributes:
        source: The other one, with its axes in the same order.
        shift: By how much rows move up.
        node: What moves them.
    """

    source: ir.Value
    shift: Expr
    node: ir.Node


@dataclass(slots=True)
class Proof(Measures):
    """One attempt to prove that a node is an update.

    Attributes:
        assumptions: What the user grants.
        opset: Version of the default domain where the node stands.
        sentences: The proof so far, in words.
        assumed: The assumptions that it used.
        granted: For each kind of assumption, the values that it was used for.
        roll: How the rows of the cache move before the update; None where they stay.
        is_narrow: Whether positions are cast to 32 bits on the way, which may wrap.
    """

    assumptions: Assumptions
    opset: int
    sentences: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    granted: defaultdict[AssumedValue, list[ir.Value]] = field(
        default_factory=lambda: defaultdict(list)
    )
    roll: Roll | None = None
    is_narrow: bool = False

    def another(self) -> Proof:
        """Return a copy, for an attempt that may fail without a trace."""
        granted = defaultdict(list, {kind: list(values) for kind, values in self.granted.items()})
        return replace(
            self, sentences=list(self.sentences), assumed=list(self.assumed), granted=granted
        )

    def adopt(self, other: Proof) -> None:
        """Adopt the sentences and assumptions of a copy."""
        self.sentences, self.assumed, self.granted = other.sentences, other.assumed, other.granted
        self.roll = other.roll

    def say(self, sentence: str) -> None:
        """Add a sentence to the proof."""
        self.sentences.append(sentence)

    def assume(self, kind: AssumedValue, value: ir.Value, code: str, missing: str) -> None:
        """Use an assumption.

        Raises:
            Unproven: If it is not granted.
        """
        granted = self.assumptions.grants(kind, value)
        if granted is None:
            raise Unproven(code, missing, assumption=f"{kind}:{value.name}")
        self.granted[kind].append(value)
        if granted not in self.assumed:
            self.assumed.append(granted)

    def whole(self, axis: int, size: Expr, others: Sequence[Expr]) -> None:
        """Prove that an update covers the whole of an axis of the cache.

        Args:
            axis: The axis of the tensor that is written to.
            size: Its size.
            others: What is known of the size of the update there, in several ways.

        Raises:
            Unproven: If none of `others` is certainly `size`.
        """
        if size in others:
            self.say(f"axis {axis} is written whole: it has size `{text(size)}` in both")
            return
        known = next((o for o in others if same_dim(size, o) is not None), others[0])
        if size.number is not None and known.number is not None:
            raise Unproven(
                "part-of-axis",
                f"axis {axis} has size {size.number}, and only {known.number} are written",
            )
        raise Unproven(
            "sizes-unrelated",
            f"axis {axis} has size `{text(size)}` in the cache and `{text(known)}` in the update, "
            "and only a part of it is written if they differ",
            assumption=same_dim(size, known),
        )


def same_dim(a: Expr, b: Expr) -> str | None:
    """Return the assumption that two sizes are equal; None if a size is neither name nor number."""
    one, other = _dim(a), _dim(b)
    if one is None or other is None or (a.number is not None and b.number is not None):
        return None
    return f"same-dim:{other}={one}" if a.number is not None else f"same-dim:{one}={other}"


def _dim(size: Expr) -> str | None:
    if size.number is not None:
        return str(size.number)
    atom = size.atom
    return atom.name if isinstance(atom, Dimension) else None
