"""No near miss is raised unless it is a hit: a search over graphs close to an update."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir
from hypothesis import event, given, note, seed

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from tests.grids import search
from tests.rewrite.raising.brute_force import Runtimes, same_bits
from tests.rewrite.raising.near_misses import NearMiss, near_misses

GRANTED = ("contiguous", "in-range", "finite")


def granted_hold(
    used: Sequence[str], positions: Sequence[int], starts: Sequence[int], room: int
) -> bool:
    """Return whether what was granted holds: positions count up, and all rows are in the cache."""
    counts = positions[1] == positions[0] + 1
    inside = all(0 <= start <= room for start in starts)
    return (counts or "contiguous" not in used) and (inside or "in-range" not in used)


@seed(20)
@search(300)
@given(near_misses())
def test_a_graph_that_is_raised_computes_the_same(case: NearMiss) -> None:
    """Every run of the source that keeps the cache's shape, unless its start is out of range."""
    source = onnx.parser.parse_model(case.text)
    model, report = kv.raise_(ir.from_proto(source), assume=GRANTED, verify=False)
    if not report.raised:
        event(report.refused[0].code if report.refused else "no candidate")
        return
    (done,) = report.raised
    event(f"raised from {done.pattern}, {done.mode}")
    note(case.text)
    note("\n".join(done.proof))
    result = onnx.load_from_string(serialize(model))
    before, after = Runtimes(source), Runtimes(result)
    sizes = [value.type.tensor_type.shape.dim for value in source.graph.input[:2]]
    room = sizes[0][done.axis].dim_value - sizes[1][done.axis].dim_value
    for feeds in case.draws.feeds(source):
        expected, actual = before.run(feeds), after.run(feeds)
        if not any(expected.values()):
            continue
        starts = after.starts(feeds, [done.write_indices])
        if not granted_hold(done.assumed, feeds["p"].tolist(), starts, room):
            continue
        for runtime, outputs in expected.items():
            if outputs is None or outputs["present"].shape != feeds["cache"].shape:
                continue
            found = actual.get(runtime)
            if found is None:
                # A start below 0, or one that a Cast of the source cuts to 32 bits, fails aloud.
                assert min(starts) < 0 or max(starts) >= 2**31, f"{runtime} fails for {feeds}"
                continue
            assert same_bits(outputs["present"], found["present"]), f"{runtime} differs for {feeds}"
