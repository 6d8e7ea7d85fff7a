"""Caches that are read, or updated, more than once."""

from __future__ import annotations

from tests.rewrite.raising.brute_force import Draws
from tests.rewrite.raising.forms import CACHE, START, elements
from tests.rewrite.raising.lookalikes.case import FREE, INSIDE, Case, free, scattered

__all__ = ["CASES"]

CASES = {
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
            inputs=f"{FREE}, float[B,3,S,7] values, int64[B] w",
            outputs="float[B,3,S,7] present, float[B,3,S,7] present_v",
        ),
        2,
    ),
    "one cache is updated twice": Case(
        free(
            scattered("cache", "upd", "w", "middle") + scattered("middle", "twin", "v", "present"),
            inputs=f"{FREE}, float[B,3,L,7] twin, int64[B] w, int64[B] v",
        ),
        2,
        INSIDE,
    ),
    "one cache has two updates of its own": Case(
        free(
            scattered("cache", "upd", "w", "present") + scattered("cache", "upd", "v", "other"),
            inputs=f"{FREE}, int64[B] w, int64[B] v",
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
            inputs=f"{FREE}, int64[B] w",
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
}
