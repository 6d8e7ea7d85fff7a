"""The table of upgrades: which rule brings which operator to a later opset, and across which.

Beside it the operators that runtimes wrote into the default domain before ONNX had them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.rewrite.upgrading.rules import (
    upgrade_axes_13_18,
    upgrade_batch_normalization_9_14,
    upgrade_cast_24,
    upgrade_clip_11,
    upgrade_dequantize_linear_13,
    upgrade_dft_20,
    upgrade_dropout_10_12,
    upgrade_grid_sample_20,
    upgrade_group_normalization_21,
    upgrade_one_hot_11,
    upgrade_pad_11,
    upgrade_quantize_linear_13_19,
    upgrade_resize_11_13,
    upgrade_roi_align_16,
    upgrade_scan_9,
    upgrade_scatter_11,
    upgrade_slice_10,
    upgrade_softmax_13,
    upgrade_split_13_18,
    upgrade_top_k_10,
    upgrade_upsample_9_10,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.emit.emitter import Emitter, Replacement
    from onnx_kvtool.rewrite.engine.rule import Rewritten


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One rule.

    Attributes:
        changes: The opsets whose change of the operator the rule answers. It brings a node from
            before one of them straight to any target from there on.
        apply: Guard, then emit. Raises `Refusal` or `MalformedNode` before anything is edited.
        typed: Whether the rule reads types or shapes, which must then be inferred.
    """

    name: str
    changes: tuple[int, ...]
    apply: Callable[[Rewritten, Emitter], ir.Value | Replacement | None]
    typed: bool = True

    def applies(self, opset: int, target: int, forced: bool = False) -> bool:
        """Return whether a change lies between the opset of a node and the target."""
        return any(opset < change <= target for change in self.changes)


_UNTYPED = (
    upgrade_dft_20,
    upgrade_dropout_10_12,
    upgrade_grid_sample_20,
    upgrade_roi_align_16,
    upgrade_scatter_11,
    upgrade_slice_10,
    upgrade_split_13_18,
    upgrade_top_k_10,
)
"""Rules that read neither types nor shapes."""


def _upgrade(apply: Callable[[Rewritten, Emitter], ir.Value | Replacement | None]) -> Upgrade:
    """Return the rule that a function called `upgrade_<name>_<opset>...` applies."""
    name, *changes = re.split(r"_(?=\d+)", apply.__name__.removeprefix("upgrade_"))
    return Upgrade(name, tuple(map(int, changes)), apply, apply not in _UNTYPED)


_AXES_18 = Upgrade("axes", (18,), upgrade_axes_13_18, typed=False)

UPGRADES: Mapping[str, Upgrade] = Table(
    "upgrade",
    [
        (op, rule if isinstance(rule, Upgrade) else _upgrade(rule))
        for ops, rule in (
            ("BatchNormalization", upgrade_batch_normalization_9_14),
            ("Cast CastLike", upgrade_cast_24),
            ("Clip", upgrade_clip_11),
            ("DFT", upgrade_dft_20),
            ("DequantizeLinear", upgrade_dequantize_linear_13),
            ("Dropout", upgrade_dropout_10_12),
            ("GridSample", upgrade_grid_sample_20),
            ("GroupNormalization", upgrade_group_normalization_21),
            ("Hardmax LogSoftmax Softmax", upgrade_softmax_13),
            ("OneHot", upgrade_one_hot_11),
            ("Pad", upgrade_pad_11),
            ("QuantizeLinear", upgrade_quantize_linear_13_19),
            ("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax", _AXES_18),
            ("ReduceMean ReduceMin ReduceProd ReduceSumSquare", _AXES_18),
            ("ReduceSum Squeeze Unsqueeze", replace(_AXES_18, changes=(13,))),
            ("Resize", upgrade_resize_11_13),
            ("RoiAlign", upgrade_roi_align_16),
            ("Scan", upgrade_scan_9),
            ("Scatter", upgrade_scatter_11),
            ("Slice", upgrade_slice_10),
            ("Split", upgrade_split_13_18),
            ("TopK", upgrade_top_k_10),
            ("Upsample", upgrade_upsample_9_10),
        )
        for op in ops.split()
    ],
)

EARLY: Mapping[str, int] = Table(
    "early operator",
    [
        # onnxruntime's optimiser fuses it at every opset. Its own schema has the inputs,
        # attributes and defaults of version 17 (onnxruntime 1.31).
        ("LayerNormalization", 17),
    ],
)
"""For each operator that runtimes wrote before ONNX had it, the opset whose version they mean."""


def tag_early(nodes: Iterable[ir.Node], opset: int) -> None:
    """Tag the nodes that a model of an opset cannot have with the opset that they mean, in place.

    Other nodes are written for `opset`, unless they are tagged.
    """
    for node in nodes:
        early = EARLY.get(node.op_type)
        if early is None or node.domain != "":
            continue
        if op_facts(node.op_type, node.version or opset) is None:
            node.version = early
