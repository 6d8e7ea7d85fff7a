"""The table of upgrades: which rule brings which operator to a later opset, and across which.

Beside it the operators that runtimes wrote into the default domain before ONNX had them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnx_kvtool.core.table import Table
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


def _upgrade(
    apply: Callable[[Rewritten, Emitter], ir.Value | Replacement | None], *, typed: bool = True
) -> Upgrade:
    """Return the rule that a function called `upgrade_<name>_<opset>...` applies."""
    name, *changes = re.split(r"_(?=\d+)", apply.__name__.removeprefix("upgrade_"))
    return Upgrade(name, tuple(map(int, changes)), apply, typed)


_AXES_18 = Upgrade("axes", (18,), upgrade_axes_13_18, typed=False)

UPGRADES: Mapping[str, Upgrade] = Table(
    "upgrade",
    [
        (op, rule)
        for ops, rule in (
            ("BatchNormalization", _upgrade(upgrade_batch_normalization_9_14)),
            ("Cast CastLike", _upgrade(upgrade_cast_24)),
            ("Clip", _upgrade(upgrade_clip_11)),
            ("DFT", _upgrade(upgrade_dft_20, typed=False)),
            ("DequantizeLinear", _upgrade(upgrade_dequantize_linear_13)),
            ("Dropout", _upgrade(upgrade_dropout_10_12, typed=False)),
            ("GridSample", _upgrade(upgrade_grid_sample_20, typed=False)),
            ("GroupNormalization", _upgrade(upgrade_group_normalization_21)),
            ("Hardmax LogSoftmax Softmax", _upgrade(upgrade_softmax_13)),
            ("OneHot", _upgrade(upgrade_one_hot_11)),
            ("Pad", _upgrade(upgrade_pad_11)),
            ("QuantizeLinear", _upgrade(upgrade_quantize_linear_13_19)),
            ("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax", _AXES_18),
            ("ReduceMean ReduceMin ReduceProd ReduceSumSquare", _AXES_18),
            ("ReduceSum Squeeze Unsqueeze", replace(_AXES_18, changes=(13,))),
            ("Resize", _upgrade(upgrade_resize_11_13)),
            ("RoiAlign", _upgrade(upgrade_roi_align_16, typed=False)),
            ("Scan", _upgrade(upgrade_scan_9)),
            ("Scatter", _upgrade(upgrade_scatter_11, typed=False)),
            ("Slice", _upgrade(upgrade_slice_10, typed=False)),
            ("Split", _upgrade(upgrade_split_13_18, typed=False)),
            ("TopK", _upgrade(upgrade_top_k_10, typed=False)),
            ("Upsample", _upgrade(upgrade_upsample_9_10)),
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
