"""The layout of small graphs: boxes beside each other, edges downwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.report.cache_graph import Layout, layered
from tests.grids import search


def overlapping(layout: Layout) -> list[tuple[str, str]]:
    found = []
    boxes = list(layout.boxes.items())
    for i, (name, box) in enumerate(boxes):
        for other, there in boxes[:i]:
            close_x = abs(box.x - there.x) < (box.width + there.width) / 2 - 0.01
            close_y = abs(box.y - there.y) < (box.height + there.height) / 2 - 0.01
            if close_x and close_y:
                found.append((other, name))
    return found


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]:
    count = draw(st.integers(0, 12))
    sizes = {f"n{i}": (float(draw(st.integers(10, 200))), 27.0) for i in range(count)}
    pairs = [(f"n{a}", f"n{b}") for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=20, unique=True)) if pairs else []
    return sizes, edges


@search(60)
@given(graphs())
def test_boxes_do_not_overlap_and_edges_lead_down(graph) -> None:
    sizes, edges = graph
    layout = layered(sizes, edges)
    assert set(layout.boxes) == set(sizes)
    assert overlapping(layout) == []
    for (source, target), line in zip(edges, layout.lines, strict=True):
        assert layout.boxes[source].y < layout.boxes[target].y
        heights = [y for _, y in line]
        assert heights == sorted(heights)
    for box in layout.boxes.values():
        assert box.width / 2 - 0.01 <= box.x <= layout.width - box.width / 2 + 0.01
        assert box.height / 2 <= box.y <= layout.height - box.height / 2 + 0.01


def test_a_chain_is_straight() -> None:
    sizes = {"a": (80.0, 27.0), "b": (120.0, 42.0), "c": (40.0, 27.0)}
    layout = layered(sizes, [("a", "b"), ("b", "c")])
    assert {round(box.x) for box in layout.boxes.values()} == {60}


def test_a_source_stands_above_its_first_use() -> None:
    sizes = dict.fromkeys("abcd", (40.0, 20.0))
    layout = layered(sizes, [("a", "b"), ("b", "c"), ("d", "c")])
    assert layout.boxes["d"].y == layout.boxes["b"].y


@pytest.mark.parametrize(
    "edges",
    [
        pytest.param([("a", "b"), ("b", "a")], id="a cycle"),
        pytest.param([("a", "a")], id="an edge from a box to itself"),
        pytest.param([], id="no edge"),
    ],
)
def test_odd_graphs_are_laid_out(edges) -> None:
    layout = layered(dict.fromkeys("ab", (40.0, 20.0)), edges)
    assert overlapping(layout) == []
    assert len(layout.lines) == len(edges)
