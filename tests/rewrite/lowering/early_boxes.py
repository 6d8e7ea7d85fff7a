"""Drawn nodes of the operators of boxes, for the rules at opset 9."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.rewrite.lowering.early_draws import Array, Case, Draw

__all__ = ["DRAWN_BOXES"]


def _overlap(one: Array, other: Array, center: int) -> float:
    """Return the share of what both boxes cover that both of them do; 0 where one has no area."""
    sides = []
    for box in (one, other):
        if center:
            low, high = box[:2] - box[2:] / np.float32(2), box[:2] + box[2:] / np.float32(2)
        else:
            low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
        sides.append((low, high))
    both = np.minimum(sides[0][1], sides[1][1]) - np.maximum(sides[0][0], sides[1][0])
    areas = [np.prod(high - low) for low, high in sides]
    if (both <= 0).any() or min(areas) <= 0:
        return 0.0
    return float(np.prod(both) / (areas[0] + areas[1] - np.prod(both)))


def _suppressed(
    boxes: Array, scores: Array, most: int, share: float, least: float | None, center: int
) -> Array:
    """Take boxes one by one, the best first, of equal ones the first."""
    found = []
    for b, c in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for place in np.argsort(-scores[b, c], kind="stable"):
            if len(kept) == most or (least is not None and not scores[b, c, place] > least):
                break
            if all(not _overlap(boxes[b, place], boxes[b, k], center) > share for k in kept):
                kept.append(int(place))
        found += [(b, c, place) for place in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def non_max_suppression(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Boxes on a grid, such that scores and overlaps are often equal, some without an area."""
    batch, classes, count = (draw(st.integers(1, most)) for most in (2, 3, 7))
    boxes = rng.integers(0, 6, (batch, count, 4)).astype(np.float32)
    scores = (rng.integers(-2, 5, (batch, classes, count)) / 4).astype(np.float32)
    most = draw(st.sampled_from([None, 0, 1, 2, 9]))
    share = draw(st.sampled_from([None, 0.1, 0.4, 1.0]))
    least = draw(st.sampled_from([None, -0.25, 0.3]))
    center = draw(st.integers(0, 1))
    form = draw(st.sampled_from([[], [1]]))
    inputs: dict[str, Array | None] = {"boxes": boxes, "scores": scores}
    inputs["most"] = None if most is None else np.full(form, most, np.int64)
    for name, number in (("iou", share), ("score", least)):
        inputs[name] = None if number is None else np.full(form, number, np.float32)
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    limit = float(np.float32(share or 0))
    expected = _suppressed(boxes, scores, most or 0, limit, least, center)
    constants = [n for n in ("most", "iou") if inputs.get(n) is not None and draw(st.booleans())]
    return Case(
        "NonMaxSuppression", inputs, [np.int64], 10, constants=constants,
        attributes={"center_point_box": center} if center else {}, expected=[expected],
        is_run=True,
    )  # fmt: skip


def _sample(picture: Array, y: float, x: float, mode: str) -> Array:
    """Return what is at a point of a picture (C, H, W): the sum or the largest of four shares."""
    height, width = picture.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(picture))
    shares = []
    for place, size in ((y, height), (x, width)):
        held = min(max(place, 0), size - 1)
        low = math.floor(held)
        far = held - low
        shares.append([(low, 1 - far), (min(low + 1, size - 1), far)])
    parts = [picture[:, r, c] * (p * q) for (r, p), (c, q) in itertools.product(*shares)]
    return np.sum(parts, 0) if mode == "avg" else np.max(parts, 0)


def roi_align(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    """Boxes inside and outside of pictures, smaller than a pixel as well; 0 samples for as many."""
    batch, channels, height, width = (draw(st.integers(1, most)) for most in (2, 3, 6, 7))
    x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
    count = draw(st.integers(1, 4))
    low = rng.integers(-8, 24, (count, 2)) / 4
    rois = np.concatenate([low, low + rng.integers(0, 24, (count, 2)) / 4], 1).astype(np.float32)
    bins = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    ratio, scale = draw(st.integers(0, 2)), draw(st.sampled_from([1.0, 0.5]))
    mode = draw(st.sampled_from(["avg", "max"]))
    pictures = rng.integers(0, batch, count)
    expected = np.zeros((count, channels, *bins))
    for r, i, j in np.ndindex(count, *bins):
        box = rois[r].astype(np.float64) * scale
        places = []
        for axis, (place, number) in enumerate(zip((i, j), bins, strict=True)):
            start, end = box[1 - axis], box[3 - axis]
            one = max(end - start, 1.0) / number
            samples = ratio or math.ceil(one)
            places.append([start + (place + (s + 0.5) / samples) * one for s in range(samples)])
        values = [_sample(x[pictures[r]], a, b, mode) for a, b in itertools.product(*places)]
        expected[r, :, i, j] = np.mean(values, 0) if mode == "avg" else np.max(values, 0)
    attributes: dict[str, Any] = {"output_height": bins[0], "output_width": bins[1]}
    attributes |= {"sampling_ratio": ratio, "spatial_scale": scale, "mode": mode}
    inputs = {"X": x, "rois": rois, "batch_indices": pictures}
    return Case(
        "RoiAlign", inputs, [np.float32], 10, attributes=attributes,
        expected=[expected.astype(np.float32)], rtol=1e-4, is_run=True,
    )  # fmt: skip


DRAWN_BOXES: dict[str, Draw] = {
    "NonMaxSuppression": non_max_suppression,
    "RoiAlign": roi_align,
}
