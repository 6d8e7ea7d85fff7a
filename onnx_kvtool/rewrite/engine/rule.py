"""What a rule is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from onnx_kvtool.core.choices import Bounds, IndexDtype, Via

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.emit.emitter import Emitter, Replacement
    from onnx_kvtool.rewrite.engine.release_limits import ReleaseLimits

__all__ = [
    "LoweringContext",
    "Options",
    "RewriteRule",
]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller chose about the form of the result.

    Attributes:
        via: Form of a lowered TensorScatter.
        index_dtype: Element type of ScatterElements indices; `int32` excludes ScatterND.
        bounds: Whether a start that TensorScatter refuses must fail in the result too.
        branches: Whether an If may choose between two forms at run time; not below opset 11, where
            both branches have to give equal shapes.
    """

    via: Via = "auto"
    index_dtype: IndexDtype = "int64"
    bounds: Bounds = "checked"
    branches: bool = True


@dataclass(frozen=True, slots=True)
class LoweringContext:
    """One legalisation, as its rules see it.

    Attributes:
        opset: Version of the default domain of the source graph.
        target: Version of the default domain of the result.
        options: What the caller chose.
        folder: Folding of small integers.
        keep_fused: Whether an operator that the target has in some form is kept in that form.
        limits: What the release that must load the result cannot be given; None when the opset is
            the only limit. The engine asks again with `keep_fused` off for what they strike.
    """

    opset: int
    target: int
    options: Options
    folder: Folder
    keep_fused: bool = True
    limits: ReleaseLimits | None = None

    def opset_of(self, node: ir.Node) -> int:
        """Return the opset that `node` was written for: its own tag, or that of the graph."""
        return node.version if node.version is not None else self.opset


class RewriteRule(Protocol):
    """A rule of one operator: a line of the table of lowerings, or of that of upgrades."""

    @property
    def name(self) -> str:
        """What the report calls the rule."""

    @property
    def apply(self) -> Callable[[LoweringContext, ir.Node, Emitter], Replacement | None]:
        """Guard, then emit.

        Raises `Refusal` or `MalformedNode` before anything is edited; returns None where the rule
        has nothing to say.
        """

    def applies(self, opset: int, target: int, forced: bool) -> bool:
        """Return whether the rule takes a node of `opset` to `target`.

        Args:
            opset: What the node was written for.
            target: What it shall be legal at.
            forced: Whether the caller wants the operator gone although the target has it.
        """
