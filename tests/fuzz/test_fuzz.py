"""Random graphs: whatever is valid is checked, inferred, lowered and raised without a fault."""

from __future__ import annotations

import os
from collections import Counter

import onnx
import pytest

from tests.fuzz.graphs import draw
from tests.fuzz.judge import judge, unknown

pytestmark = pytest.mark.forks  # what is drawn may run without end, or end its process

_SEED = int(os.environ.get("KVTOOL_SEED", "0"))
_GRAPHS = 150


@pytest.mark.slow
@pytest.mark.needs_onnxruntime("1.29")
def test_random_graphs() -> None:
    """Run one again with `python -m tests.fuzz --seed SEED --count 1 --show`."""
    counts: Counter[str] = Counter()
    wrong = {}
    for seed in range(_SEED, _SEED + _GRAPHS):
        drawn = draw(seed)
        if problems := [text for text in judge(drawn, counts) if unknown(text, drawn)]:
            wrong[seed] = problems
    assert wrong == {}
    # That the graphs are such that something can be found in them.
    assert counts["graphs"] > 0.6 * _GRAPHS
    assert counts["lowerings"] > _GRAPHS
    assert counts["raised"] > 0.03 * _GRAPHS
    assert counts["run by onnxruntime"] > 0.3 * _GRAPHS


@pytest.mark.slow
def test_a_seed_gives_the_same_graph_again() -> None:
    one, other = draw(3), draw(3)
    assert onnx.printer.to_text(one.model) == onnx.printer.to_text(other.model)
    assert all((one.feeds[name] == other.feeds[name]).all() for name in one.feeds)
