"""Odd but sound updates: raised or not, the cache is the same on every input that is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.model import serialize
from tests.rewrite.raising.brute_force import Draws, compare, in_all_graphs
from tests.rewrite.raising.forms import CACHE, START, UPDATE, elements, graph, one_hot, shared

_FREE = "float[B,3,S,7] cache, float[B,3,L,7] upd"

_POSITIONS = """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    two = Constant <value = int64 {2}> ()
    ones = Constant <value = int64[3] {1, 2, 3}> ()
    outer = Constant <value = int64[3] {0, 1, 3}> ()
    shape = Shape (upd)
    length = Gather (shape, two)
    range = Range (zero, length, one)
    rows = Unsqueeze (range, outer)
"""


def scattered(cache: str, update: str, start: str, present: str) -> str:
    """Return nodes that write `update` to `cache` from `start` (B,) on."""
    return f"""
        {present}_s = Unsqueeze ({start}, ones)
        {present}_p = Add ({present}_s, rows)
        {present}_i = Expand ({present}_p, shape)
        {present} = ScatterElements <axis = 2> ({cache}, {present}_i, {update})
    """


def free(
    body: str,
    inputs: str = f"{_FREE}, int64[B] w",
    outputs: str = "float[B,3,S,7] present",
    tail: str = "",
) -> str:
    return graph(inputs, _POSITIONS + body, outputs, tail=tail)


@dataclass(frozen=True, slots=True)
class Case:
    """A model.

    Attributes:
        text: The model.
        count: How many updates are raised with everything granted; None where either is right.
        draws: The inputs.
        assume: What is granted.
        in_body: Whether the starts are not values of the main graph.
    """

    text: str
    count: int | None
    draws: Draws = field(default_factory=lambda: SIZES)
    assume: tuple[str, ...] = ()
    in_body: bool = False


SIZES = Draws(sizes={"B": (1, 2, 3), "S": (2, 5), "L": (1, 2)}, count=60)
INSIDE = Draws({"w": range(4), "v": range(4), "n": range(3)}, {"B": (1, 2), "S": (5,), "L": (1, 2)})

CASES = {
    "the start is clamped to what is left": Case(
        free(
            """
            sizes = Shape (cache)
            capacity = Gather (sizes, two)
            room = Sub (capacity, length)
            clamped = Min (w, room)
            """
            + scattered("cache", "upd", "clamped", "present")
        ),
        None,
    ),
    "the start is clamped at zero": Case(
        free("start = Max (w, zero)" + scattered("cache", "upd", "start", "present")), None
    ),
    "a start below zero is counted from the end by the graph": Case(
        free(
            """
            sizes = Shape (cache)
            capacity = Gather (sizes, two)
            wrapped = Add (w, capacity)
            low = Less (w, zero)
            start = Where (low, wrapped, w)
            """
            + scattered("cache", "upd", "start", "present")
        ),
        None,
    ),
    "a start below zero goes to the front": Case(
        free(
            "low = Less (w, zero)\n start = Where (low, zero, w)"
            + scattered("cache", "upd", "start", "present")
        ),
        None,
    ),
    "a start below zero is mirrored": Case(
        free("start = Abs (w)" + scattered("cache", "upd", "start", "present")), None
    ),
    "the start is one less than the length so far": Case(
        free("start = Sub (w, one)" + scattered("cache", "upd", "start", "present")), 1
    ),
    "the start is one less than the length so far, and wraps": Case(
        elements("less = Sub (starts, one)\n sum = Add (less, rows)\n pos = Mod (sum, capacity)"),
        None,
    ),
    "the start is negated, and wraps": Case(
        elements("less = Neg (starts)\n sum = Add (less, rows)\n pos = Mod (sum, capacity)"), None
    ),
    "the modulus is negative": Case(
        elements("less = Neg (capacity)\n sum = Add (starts, rows)\n pos = Mod (sum, less)"), None
    ),
    "a start that wraps, and rows that do not": Case(
        elements("wrapped = Mod (starts, capacity)\n pos = Add (wrapped, rows)"), None
    ),
    "a start that wraps twice": Case(
        elements(
            "once = Mod (starts, capacity)\n sum = Add (once, rows)\n pos = Mod (sum, capacity)"
        ),
        1,
    ),
    "positions pass through bool": Case(
        elements(
            "hit = Cast <to = 9> (starts)\n back = Cast <to = 7> (hit)\n pos = Add (back, rows)"
        ),
        None,
    ),
    "the end of the cache": Case(
        free(
            """
            sizes = Shape (cache)
            capacity = Gather (sizes, two)
            room = Sub (capacity, length)
            still = Sub (w, w)
            start = Add (still, room)
            """
            + scattered("cache", "upd", "start", "present")
        ),
        None,
    ),
    "the starts in reverse": Case(
        elements(
            "back = Constant <value = int64[2] {1, 0}> ()\n turned = Gather (w, back)\n"
            "s = Unsqueeze (turned, ones)\n pos = Add (s, rows)"
        ),
        1,
    ),
    "starts from a table": Case(
        elements(
            "table = Constant <value = int64[8] {3, 0, 2, 1, 0, 1, 2, 3}> ()\n"
            "looked = Gather (table, w)\n s = Unsqueeze (looked, ones)\n pos = Add (s, rows)"
        ),
        None,
    ),
    "starts are the first column of positions": Case(
        elements(
            "zero = Constant <value = int64 {0}> ()\n column = Gather <axis = 1> (p, zero)\n"
            "s = Unsqueeze (column, ones)\n pos = Add (s, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[2,4] p",
        ),
        1,
    ),
    "starts are a diagonal": Case(
        elements(
            "ids = Constant <value = int64[2,1] {0, 1}> ()\n"
            "column = GatherND <batch_dims = 1> (p, ids)\n"
            "s = Unsqueeze (column, ones)\n pos = Add (s, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int64[2,2] p",
        ),
        None,
    ),
    "starts of 32 bits": Case(
        elements(
            "wide = Cast <to = 7> (s)\n at = Unsqueeze (wide, ones)\n pos = Add (at, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int32[2] s",
        ),
        1,
    ),
    "starts of 8 bits that overflow": Case(
        elements(
            "n = Cast <to = 3> (ones)\n at = Unsqueeze (s, ones)\n twice = Add (at, at)\n"
            "wide = Cast <to = 7> (twice)\n pos = Add (wide, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, int8[2] s",
        ),
        None,
        Draws({"s": (0, 1, 127, -127, -128, 64)}),
    ),
    "starts as floating point": Case(
        elements(
            "n = Cast <to = 7> (s)\n at = Unsqueeze (n, ones)\n pos = Add (at, rows)",
            inputs=f"{CACHE}, {UPDATE}, {START}, float[2] s",
        ),
        1,
        Draws(count=10),
    ),
    "one row is the update of both sequences": Case(
        elements(
            inputs=f"{CACHE}, float[1,3,2,7] one_upd, {START}",
            scatter="both = Expand (one_upd, shape)\n"
            "present = ScatterElements <axis = 2> (cache, index, both)",
        ),
        1,
    ),
    "the update lacks the batch, and the batch of the cache may be 1": Case(
        free(
            scattered("cache", "wide", "w", "present")
            .replace("present_s =", "wide = Expand (upd, shape)\n present_s =")
            .replace("shape", "full"),
            inputs="float[B,3,S,7] cache, float[C,3,L,7] upd, int64[B] w",
        ).replace(
            "length = Gather",
            "bs = Shape <start = 0, end = 1> (cache)\n tail = Shape <start = 1> (upd)\n"
            "full = Concat <axis = 0> (bs, tail)\n length = Gather",
        ),
        None,
        Draws({"w": range(4)}, {"B": (1, 2, 3), "C": (1,), "S": (5,), "L": (1, 2)}),
    ),
    "the cache is read elsewhere too": Case(
        free(
            scattered("cache", "upd", "w", "present")
            + "\n half = Add (cache, cache)\n total = Sub (half, present)",
            outputs="float[B,3,S,7] present, float[B,3,S,7] total",
        ),
        1,
    ),
    "the cache and the result are both read": Case(
        free(
            scattered("cache", "upd", "w", "present")
            + "\n again = Concat <axis = 2> (present, cache)",
            outputs="float[B,3,S,7] present, float[B,3,T,7] again",
        ),
        1,
    ),
    "keys and values are a row apart": Case(
        free(
            scattered("cache", "upd", "w", "present")
            + "next = Add (w, one)"
            + scattered("values", "upd", "next", "present_v"),
            inputs=f"{_FREE}, float[B,3,S,7] values, int64[B] w",
            outputs="float[B,3,S,7] present, float[B,3,S,7] present_v",
        ),
        2,
    ),
    "one cache is updated twice": Case(
        free(
            scattered("cache", "upd", "w", "middle") + scattered("middle", "twin", "v", "present"),
            inputs=f"{_FREE}, float[B,3,L,7] twin, int64[B] w, int64[B] v",
        ),
        2,
        INSIDE,
    ),
    "one cache has two updates of its own": Case(
        free(
            scattered("cache", "upd", "w", "present") + scattered("cache", "upd", "v", "other"),
            inputs=f"{_FREE}, int64[B] w, int64[B] v",
            outputs="float[B,3,S,7] present, float[B,3,S,7] other",
        ),
        2,
        INSIDE,
    ),
    "the second update starts at the capacity of the first result": Case(
        free(
            scattered("cache", "upd", "w", "middle")
            + """
            sizes = Shape (middle)
            capacity = Gather (sizes, two)
            room = Sub (capacity, length)
            still = Sub (w, w)
            start = Add (still, room)
            """
            + scattered("middle", "upd", "start", "present"),
            inputs=f"{_FREE}, int64[B] w",
        ),
        None,
        INSIDE,
    ),
    "the capacity has no name": Case(
        free(
            """
            sizes = Shape (cache)
            capacity = Gather (sizes, two)
            room = Sub (capacity, length)
            start = Sub (room, w)
            """
            + scattered("cache", "upd", "start", "middle")
            + """
            again = Shape (middle)
            last = Gather (again, two)
            left = Sub (last, length)
            still = Sub (w, w)
            end = Add (still, left)
            """
            + scattered("middle", "upd", "end", "present"),
            inputs="float[B,3,?,7] cache, float[B,3,L,7] upd, int64[B] w",
            outputs="float[B,3,?,7] present",
        ),
        None,
        INSIDE,
    ),
    "the result leaves in both layouts": Case(
        shared(
            outputs="float[2,3,5,7] present, float[5,2,3,7] s, float[7,3,5,2] third",
            extra="third = Transpose <perm = [3, 1, 2, 0]> (present)",
        ),
        1,
    ),
    "the result leaves twice": Case(
        shared(
            outputs="float[2,3,5,7] present, float[2,3,5,7] twin",
            extra="twin = Identity (present)",
        ),
        1,
    ),
    "two transposes bring the result back": Case(
        shared(
            outputs="float[2,3,5,7] present, float[2,3,5,7] twin",
            extra="twin = Transpose <perm = [1, 2, 0, 3]> (s)",
        ),
        1,
    ),
    "the result goes on in the layout of the scatter": Case(
        shared(
            back="1, 2, 0, 3",
            outputs="float[2,3,5,7] present, float[5,2,3,7] more",
            extra="more = Add (s, s)",
        ),
        1,
    ),
    "the layouts of cache and update differ": Case(
        shared(
            perm="1, 3, 0, 2",
            inputs=f"{CACHE}, float[3,2,7,2] upd, int64[2] p",
        ).replace("perm = [1, 3, 0, 2]", "perm = [3, 1, 0, 2]"),
        None,
    ),
    "only the sequence is moved ahead": Case(
        shared(
            data="c = Transpose <perm = [2, 1, 0, 3]> (cache)",
            perm="2, 1, 0, 3",
            back="2, 1, 0, 3",
        ),
        1,
    ),
    "the result stays rearranged": Case(
        shared(back="3, 2, 1, 0", outputs="float[7,3,2,5] present"),
        1,
    ),
    "a start that the caller may leave out": Case(
        """<ir_version: 10, opset_import: ["": 18]>
        decoder (float[2,3,5,7] cache, float[2,3,2,7] upd, int64[2] w)
        => (float[2,3,5,7] present) <int64[2] w = {1, 3}> {
            ones = Constant <value = int64[3] {1, 2, 3}> ()
            rows = Constant <value = int64[1,1,2,1] {0, 1}> ()
            shape = Constant <value = int64[4] {2, 3, 2, 7}> ()
            starts = Unsqueeze (w, ones)
            pos = Add (starts, rows)
            index = Expand (pos, shape)
            present = ScatterElements <axis = 2> (cache, index, upd)
        }""",
        1,
        Draws({"w": range(5)}),
    ),
    "starts that are constants": Case(
        elements(
            "c = Constant <value = int64[2,1,1,1] {3, 1}> ()\n pos = Add (c, rows)",
        ),
        1,
    ),
    "one of two constant starts is below zero": Case(
        elements("c = Constant <value = int64[2,1,1,1] {3, -2}> ()\n pos = Add (c, rows)"), None
    ),
    "a mask in the other branch": Case(
        one_hot(
            "on = Equal (starts, places)\n hit = Not (on)", select="present = Where (m, cache, upd)"
        ),
        1,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "a mask of positions in range by construction": Case(
        one_hot(
            "five = Constant <value = int64 {5}> ()\n wrapped = Mod (starts, five)\n"
            "hit = Equal (wrapped, places)"
        ),
        None,
    ),
    "a mask over a shifted range": Case(
        one_hot(places="int64[1,5] {2, 3, 4, 5, 6}"),
        1,
        Draws({"w": range(2, 7)}),
        ("in-range",),
    ),
    "a mask over a reversed range": Case(
        one_hot(places="int64[1,5] {4, 3, 2, 1, 0}"),
        None,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "a mask by difference": Case(
        one_hot(
            "zero = Constant <value = int64 {0}> ()\n gap = Sub (starts, places)\n"
            "hit = Equal (gap, zero)"
        ),
        None,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "masked products of integers": Case(
        one_hot(
            inputs="int32[2,3,5,7] cache, int32[2,3,1,7] upd, int64[2] w",
            outputs="int32[2,3,5,7] present",
            select="f = Cast <to = 6> (m)\n one = Constant <value = int32 {1}> ()\n"
            "keep = Sub (one, f)\n a = Mul (keep, cache)\n b = Mul (upd, f)\n"
            "present = Add (b, a)",
        ),
        1,
        Draws({"w": range(5)}),
        ("in-range",),
    ),
    "a body of If updates a cache of the graph": Case(
        free(
            """
            present = If (flag) <
                then_branch = yes () => (float[B,3,S,7] y) {
                    ts = Unsqueeze (w, ones)
                    tp = Add (ts, rows)
                    ti = Expand (tp, shape)
                    y = ScatterElements <axis = 2> (cache, ti, upd)
                },
                else_branch = no () => (float[B,3,S,7] z) {
                    v = Add (w, one)
                    es = Unsqueeze (v, ones)
                    ep = Add (es, rows)
                    ei = Expand (ep, shape)
                    z = ScatterElements <axis = 2> (cache, ei, upd)
                }
            >
            """,
            inputs=f"{_FREE}, int64[B] w, bool flag",
        ),
        2,
        Draws({"w": range(4)}, {"B": (1, 2), "S": (5, 6), "L": (1,)}),
        in_body=True,
    ),
    "a body of If and the graph write at one start": Case(
        free(
            """
            first = If (flag) <
                then_branch = yes () => (float[B,3,S,7] y) {
                    t = Add (w, one)
                    ts = Unsqueeze (t, ones)
                    tp = Add (ts, rows)
                    ti = Expand (tp, shape)
                    y = ScatterElements <axis = 2> (cache, ti, upd)
                },
                else_branch = no () => (float[B,3,S,7] z) { z = Identity (cache) }
            >
            v = Add (w, one)
            """
            + scattered("first", "upd", "v", "present"),
            inputs=f"{_FREE}, int64[B] w, bool flag",
        ),
        2,
        Draws({"w": range(3)}, {"B": (1, 2), "S": (5, 6), "L": (1, 2)}),
        in_body=True,
    ),
    "a body of Loop updates its state": Case(
        free(
            """
            go = Constant <value = bool {1}> ()
            present = Loop (n, go, cache) <body = step (int64 i, bool on, float[B,3,S,7] state)
                => (bool stay, float[B,3,S,7] next) {
                    stay = Identity (on)
                    v = Add (w, i)
                    bs = Unsqueeze (v, ones)
                    bp = Add (bs, rows)
                    bi = Expand (bp, shape)
                    next = ScatterElements <axis = 2> (state, bi, upd)
                }>
            """,
            inputs=f"{_FREE}, int64[B] w, int64 n",
        ),
        1,
        Draws({"w": range(2), "n": range(4)}, {"B": (1, 2), "S": (6,), "L": (1, 2)}),
        in_body=True,
    ),
    "a body of Loop moves the start on": Case(
        free(
            """
            go = Constant <value = bool {1}> ()
            present, last = Loop (n, go, cache, w) <
                body = step (int64 i, bool on, float[B,3,S,7] state, int64[B] at)
                => (bool stay, float[B,3,S,7] next, int64[B] then) {
                    stay = Identity (on)
                    then = Add (at, length)
                    bs = Unsqueeze (at, ones)
                    bp = Add (bs, rows)
                    bi = Expand (bp, shape)
                    next = ScatterElements <axis = 2> (state, bi, upd)
                }>
            """,
            inputs=f"{_FREE}, int64[B] w, int64 n",
            outputs="float[B,3,S,7] present, int64[B] last",
        ),
        1,
        Draws({"w": range(2), "n": range(3)}, {"B": (1, 2), "S": (6,), "L": (1, 2)}),
        in_body=True,
    ),
    "a function updates its parameter": Case(
        graph(
            f"{CACHE}, {UPDATE}, {START}",
            "present = local.write (cache, upd, w)",
            tail="""
            <domain: "local", opset_import: ["": 18]> write (c, u, s) => (r) {
                ones = Constant <value = int64[3] {1, 2, 3}> ()
                rows = Constant <value = int64[1,1,2,1] {0, 1}> ()
                shape = Shape (u)
                at = Unsqueeze (s, ones)
                pos = Add (at, rows)
                index = Expand (pos, shape)
                r = ScatterElements <axis = 2> (c, index, u)
            }""",
        ),
        1,
        Draws({"w": range(4)}),
        in_body=True,
    ),
    "a function is called with heads and features of other sizes": Case(
        graph(
            f"{CACHE}, float[2,2,2,5] upd, {START}, float[2,3,5,7] other, float[2,3,2,7] rest",
            "present = local.write (cache, upd, w)\n second = local.write (other, rest, w)",
            "float[2,3,5,7] present, float[2,3,5,7] second",
            tail="""
            <domain: "local", opset_import: ["": 18]> write (c, u, s) => (r) {
                ones = Constant <value = int64[3] {1, 2, 3}> ()
                rows = Constant <value = int64[1,1,2,1] {0, 1}> ()
                shape = Shape (u)
                at = Unsqueeze (s, ones)
                pos = Add (at, rows)
                index = Expand (pos, shape)
                r = ScatterElements <axis = 2> (c, index, u)
            }""",
        ),
        None,
        Draws({"w": range(4)}),
        in_body=True,
    ),
    "a function makes the positions": Case(
        graph(
            f"{CACHE}, {UPDATE}, {START}",
            """
            index = local.places (upd, w)
            present = ScatterElements <axis = 2> (cache, index, upd)
            """,
            tail="""
            <domain: "local", opset_import: ["": 18]> places (u, s) => (index) {
                ones = Constant <value = int64[3] {1, 2, 3}> ()
                rows = Constant <value = int64[1,1,2,1] {0, 1}> ()
                shape = Shape (u)
                at = Unsqueeze (s, ones)
                pos = Add (at, rows)
                index = Expand (pos, shape)
            }""",
        ),
        None,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cache_is_the_same(case: Case) -> None:
    source = onnx.parser.parse_model(case.text)
    onnx.checker.check_model(source, full_check=True)

    model, report = kv.raise_(ir.from_proto(source), assume=case.assume, verify=False)

    if case.count is not None:
        assert [str(refusal) for refusal in report.refused] == []
        assert len(report.raised) == case.count
    if not report.raised:
        return
    result = onnx.load_from_string(serialize(model))
    onnx.checker.check_model(result, full_check=True)
    written = sum(node.op_type == "TensorScatter" for node in in_all_graphs(result))
    assert written == len(report.raised)
    starts = [] if case.in_body else [done.write_indices for done in report.raised]
    found = compare(source, result, case.draws, starts)
    assert found.faults == []
    assert found.compared
