"""Starts that are computed in odd ways."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.forms import CACHE, START, UPDATE, elements
from tests.rewrite.raising.lookalikes.case import Case, free, scattered

__all__ = ["CASES"]

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
        free("start = Sub (w, one)" + scattered("cache", "upd", "start", "present")),
        1,
        Draws({"w": range(1, 6)}, {"B": (1, 2, 3), "S": (5, 6), "L": (1, 2)}),
        ("in-range",),
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
}
