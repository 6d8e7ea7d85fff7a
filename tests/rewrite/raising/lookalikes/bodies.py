"""Updates in bodies and functions."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.forms import CACHE, START, UPDATE, graph
from tests.rewrite.raising.lookalikes.case import FREE, Case, free, scattered

__all__ = ["CASES"]

CASES = {
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
            inputs=f"{FREE}, int64[B] w, bool flag",
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
            inputs=f"{FREE}, int64[B] w, bool flag",
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
            inputs=f"{FREE}, int64[B] w, int64 n",
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
            inputs=f"{FREE}, int64[B] w, int64 n",
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
