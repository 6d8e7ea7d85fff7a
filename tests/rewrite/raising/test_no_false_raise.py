"""No false raise: whatever is raised is run, and its cache must be that of the source."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from hypothesis import event, given, note
from hypothesis import strategies as st

from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.grids import search
from tests.rewrite.raising.dressed_updates import draw_dressed_update
from tests.rewrite.raising.random_updates import Drawn, World, draw_update, worlds


def _run(model: ir.Model, inputs: dict[str, Any], fetch: list[str]) -> dict[str, Any] | None:
    """Return values; None where the run fails or ONNX leaves its result undefined."""
    try:
        run = Evaluator(model).run(inputs, fetch=fetch)
    except KvtoolError:
        return None
    return None if run.warnings else dict(run.values)


def _is_legal(raised: ir.Model, starts: str | None, inputs: dict[str, Any], world: World) -> bool:
    """Return whether TensorScatter may not fail where the source does not.

    It refuses starts below zero, which count from the end or wrap in the source, and more rows than
    the cache has, which write over each other.
    """
    if world.sizes["L"] > world.sizes["S"]:
        return False
    if starts is None:
        return True
    run = _run(raised, inputs, [starts])
    return run is not None and bool((run[starts] >= 0).all())


def _holds(world: World) -> bool:
    """Return whether the assumptions hold that are granted: positions count up, in range."""
    counted = all(b == a + 1 for a, b in zip(world.positions, world.positions[1:], strict=False))
    length, capacity = world.sizes["L"], world.sizes["S"]
    return counted and all(0 <= n <= capacity - length for n in (*world.starts, world.start))


def _check(data: st.DataObject, drawn: Drawn, assume: list[str]) -> None:
    source = ir.from_proto(drawn.model)
    raised, report = raise_(source, assume=assume, verify=False)
    event(f"raised {len(report.raised)}")
    for refusal in report.refused:
        event(refusal.code)
    if not report.raised:
        return
    note(str(ir.to_proto(source).graph))
    note(str(report.raised[0].proof))
    output = source.graph.outputs[0].name or ""
    assert raised.graph.outputs[0].name == output
    assert any(node.op_type == "TensorScatter" for node in raised.graph)
    for world in worlds(data, drawn):
        if assume and not _holds(world):
            continue
        inputs = world.inputs(drawn)
        before = _run(source, inputs, [output])
        if before is None or before[output].shape != inputs["cache"].shape:
            continue
        after = _run(raised, inputs, [output])
        note(str(world))
        if after is None:
            assert not _is_legal(raised, report.raised[0].write_indices, inputs, world)
        else:
            np.testing.assert_array_equal(after[output], before[output])


@search(400)
@given(st.data())
def test_what_is_raised_gives_the_same_cache(data: st.DataObject) -> None:
    _check(data, draw_update(data), [])


@search(200)
@given(st.data())
def test_what_is_raised_under_assumptions_gives_the_same_cache_where_they_hold(
    data: st.DataObject,
) -> None:
    _check(data, draw_update(data), ["contiguous", "in-range", "finite"])


@search(200)
@given(st.data())
def test_what_is_raised_of_a_reshaped_update_gives_the_same_cache(data: st.DataObject) -> None:
    _check(data, draw_dressed_update(data), [])
