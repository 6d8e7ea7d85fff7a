"""The time of operators in a step, by onnxruntime's own profile."""

from __future__ import annotations

import json
import re
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import onnx_ir as ir

from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.core.record import Record
from onnx_kvtool.decoding.bound import BoundSession

Part = Literal["attention", "cache update", "projections", "rest"]

_UPDATES = frozenset({"TensorScatter", "ScatterND", "ScatterElements", "Scatter"})
_PRODUCT = re.compile(r"MatMul|Gemm(?!a)")
"""Matches the names of all products, including those that onnxruntime packs or fuses."""


@dataclass(frozen=True, slots=True)
class PartSeconds(Record):
    """What a part of all layers takes.

    Attributes:
        part: `attention`: nodes from a cache to the next product with weights; `cache update`;
            `projections`: products with weights; `rest`.
        seconds: Seconds of a decode step.
        share: Share of the time of all operators.
    """

    part: Part
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class OperatorSeconds(Record):
    """What one operator takes.

    Attributes:
        op: The operator that onnxruntime ran; it may be fused from several.
        count: Nodes with this operator in a step.
        seconds: Seconds of a decode step.
    """

    op: str
    count: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile(Record):
    """Where the steps of a model go, while onnxruntime profiles them, which costs time as well.

    Attributes:
        model: Path of the model; "" for one in memory.
        parts: Time by part of a layer.
        operators: Time by operator, longest first.
    """

    model: str
    parts: tuple[PartSeconds, ...]
    operators: tuple[OperatorSeconds, ...]


def profiled(work: Callable[[], BoundSession], parts: dict[str, Part], name: str) -> Profile:
    """Return the profile of a session: of all its runs but the first."""
    with tempfile.TemporaryDirectory() as directory:
        BoundSession.profile_to = str(Path(directory, "kvtool"))
        try:
            path = work().end_profiling()
        finally:
            BoundSession.profile_to = None
        events: list[dict[str, Any]] = json.loads(Path(path).read_text("utf-8"))
    return _summed(events, parts, name)


def _summed(events: Sequence[dict[str, Any]], parts: dict[str, Part], name: str) -> Profile:
    begins = sorted(e["ts"] for e in events if e.get("name") == "model_run")
    begins = begins[1:] or begins
    times: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * len(begins))
    counts: dict[str, int] = defaultdict(int)
    for event in events:
        label = event.get("name", "")
        step = bisect_right(begins, event["ts"]) - 1
        if event.get("cat") == "Node" and label.endswith("_kernel_time") and step >= 0:
            op = event["args"]["op_name"]
            times[label.removesuffix("_kernel_time"), op][step] += event["dur"] / 1e6
            counts[op] += 1
    seconds: dict[str, float] = defaultdict(float)
    by_part: dict[Part, float] = dict.fromkeys(get_args(Part), 0.0)
    for (node, op), steps in times.items():
        took = median(steps)  # a step that another process held up does not count
        seconds[op] += took
        by_part[parts.get(node) or _part_of(op, has_weight=op != "FusedMatMul")] += took
    total = sum(by_part.values()) or 1.0
    return Profile(
        name,
        tuple(PartSeconds(part, took, took / total) for part, took in by_part.items()),
        tuple(
            OperatorSeconds(op, counts[op] / len(begins), seconds[op])
            for op in sorted(seconds, key=lambda op: -seconds[op])
        ),
    )


def _part_of(op: str, *, has_weight: bool) -> Part:
    """Return the part of a node by its operator; a product without weights is of attention."""
    if "Attention" in op or op == "Softmax":
        return "attention"
    if op in _UPDATES:
        return "cache update"
    if _PRODUCT.search(op):
        return "projections" if has_weight else "attention"
    return "rest"


def parts_of(model: ir.Model) -> dict[str, Part]:
    """Return the part of each node of the main graph by its name; unnamed nodes get names."""
    found: dict[str, Part] = {}
    for index, node in enumerate(model.graph):
        node.name = node.name or f"kvtool_{id(model)}_{index}"
    updates = {cache.node for cache in find_caches(model, prove=False)}
    constant = {*model.graph.initializers.values()}  # and results of these
    behind: set[ir.Value] = set()  # values computed from a cache
    for node in model.graph:
        read = [value for value in node.inputs if value is not None]
        is_constant = node.op_type == "Constant" or (read and constant.issuperset(read))
        part = _part_of(node.op_type, has_weight=not constant.isdisjoint(read))
        if node in updates and "Attention" not in node.op_type:
            part = "cache update"
        elif part == "rest" and not behind.isdisjoint(read):
            part = "attention"
        if is_constant:
            constant.update(node.outputs)
        elif part in ("attention", "cache update"):
            behind.update(node.outputs)
        found[node.name or ""] = part
    return found
